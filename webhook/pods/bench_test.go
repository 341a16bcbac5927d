package pods

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/webhook/review"
	"github.com/outrigger/outrigger/webhook/server"
)

// BenchmarkAdmission measures the admission of a pod that matches three of many SidecarSets.
func BenchmarkAdmission(b *testing.B) {
	for _, others := range []int{10, 100, 1000, 10000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			var sets []*v1alpha1.SidecarSet
			for i := range others {
				sets = append(sets, selecting(fmt.Sprintf("other-%d", i), metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(i)}}))
			}
			for i := range 3 {
				sets = append(sets, fixture.SidecarSet(fmt.Sprintf("match-%d", i), loadedSidecar(fmt.Sprintf("side-%d", i))))
			}
			pods := handlerFor(b, interceptor.Funcs{}, nil, sets...)
			answer := review.Answer(pods.Answer)
			buffers, body := &server.Buffers{}, reviewOf(b, loadedPod())
			b.ReportAllocs()
			for b.Loop() {
				buffers.Body.Reset()
				buffers.Answer.Reset()
				buffers.Body.Write(body)
				if _, err := answer(b.Context(), buffers); err != nil || buffers.Answer.Len() < 1000 {
					b.Fatal("not injected", err)
				}
			}
		})
	}
}

func loadedSidecar(name string) v1alpha1.SidecarContainer {
	return fixture.Sidecar(name, func(s *v1alpha1.SidecarContainer) {
		for i := range 10 {
			s.Env = append(s.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: "value"})
		}
		s.ShareVolumePolicy.Type = v1alpha1.ShareVolumePolicyEnabled
		s.TransferEnv = []v1alpha1.TransferEnvVar{{SourceContainerName: "app", EnvName: "REGION"}}
	})
}

func loadedPod() *corev1.Pod {
	app := fixture.Container("app")
	app.Env = []corev1.EnvVar{{Name: "REGION", Value: "eu"}, {Name: "PORT", Value: "8080"}}
	app.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "logs", MountPath: "/logs"}, {Name: "token", MountPath: "/var/run/secrets"}}
	pod := fixture.Pod(app)
	for _, mount := range app.VolumeMounts {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: mount.Name})
	}
	return pod
}
