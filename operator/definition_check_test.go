package operator

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/crd"
)

// losing returns a CustomResourceDefinition that another program has installed. Each version lacks a field of
// the other version, and the conversion is disabled.
func losing() *apiextensionsv1.CustomResourceDefinition {
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}}
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	for version, field := range map[string]string{"v1alpha1": "namespace", "v1beta1": "customVersion"} {
		spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{field: {Type: "string"}}}
		definition.Spec.Versions = append(definition.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
			}},
		})
	}
	return definition
}

func TestSpec1_NoStatusIsWrittenBeforeTheDefinitionKeepsAllFields(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	read := make(chan struct{})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(losing()).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			err := c.Get(ctx, key, into, options...)
			select {
			case read <- struct{}{}:
			case <-ctx.Done():
			}
			return err
		},
	}).Build()
	check := &definitionCheck{reader: c, interval: time.Millisecond, keptInterval: time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- check.Start(ctx) }()
	<-read
	<-read
	require.ErrorIs(t, check.losesFields(), errLosesFields)

	// The webhook role adds the fields. The goroutine unblocks the reads of the check.
	go func() {
		for {
			select {
			case <-read:
			case <-ctx.Done():
				return
			}
		}
	}()
	changed, err := crd.KeepFields(ctx, c)
	require.NoError(t, err)
	require.True(t, changed)
	require.Eventually(t, func() bool { return check.losesFields() == nil }, soon, time.Millisecond)

	// A user again applies the definition that lacks fields.
	require.NoError(t, c.Delete(ctx, losing()))
	require.NoError(t, c.Create(ctx, losing()))
	require.Eventually(t, func() bool { return errors.Is(check.losesFields(), errLosesFields) }, soon, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}

// The operator has no permission to read the definition if the image is updated before the ClusterRole.
func TestADefinitionThatMayNotBeReadDelaysNoReconcile(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, crd.Name, errors.New("no"))
	var permitted atomic.Bool
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(losing()).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			if !permitted.Load() {
				return forbidden
			}
			return c.Get(ctx, key, into, options...)
		},
	}).Build()
	check := &definitionCheck{interval: time.Hour, keptInterval: time.Millisecond, reader: reader}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- check.Start(ctx) }()
	require.Eventually(t, func() bool { return check.losesFields() == nil }, soon, time.Millisecond)

	permitted.Store(true)
	require.Eventually(t, func() bool { return errors.Is(check.losesFields(), errLosesFields) }, soon, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}
