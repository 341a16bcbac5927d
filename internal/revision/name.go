package revision

import (
	"fmt"
	"hash/fnv"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// OwnerKind is the kind that owns revisions.
const OwnerKind = "SidecarSet"

// Name returns the name of a new ControllerRevision of the current content: <set>-<hash> (SPEC §6). The hash
// covers status.collisionCount. If a revision with this content already exists, the content keeps the name of
// that revision, which may be based on another collisionCount. See Find.
func Name(set *v1alpha1.SidecarSet) (string, error) {
	data, err := briefContent(&set.Spec)
	if err != nil {
		return "", fmt.Errorf("name the revision of SidecarSet %s: %w", set.Name, err)
	}
	hash := fnv.New32a()
	hash.Write(data)
	if count := set.Status.CollisionCount; count != nil {
		hash.Write([]byte(strconv.Itoa(int(*count))))
	}
	return set.Name + "-" + rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10)), nil
}

// New builds the ControllerRevision of the current content (SPEC §6). The SidecarSet owns the
// revision, so the revision is garbage-collected with the SidecarSet.
func New(set *v1alpha1.SidecarSet, namespace string, number int64) (*appsv1.ControllerRevision, error) {
	data, err := Content(&set.Spec)
	if err != nil {
		return nil, fmt.Errorf("build the revision of SidecarSet %s: %w", set.Name, err)
	}
	name, err := Name(set)
	if err != nil {
		return nil, err
	}
	built := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Data:       runtime.RawExtension{Raw: data},
	}
	MakeLatest(built, set, number)
	return built, nil
}

// MakeLatest makes a revision the latest revision of a SidecarSet. MakeLatest sets number, owner, labels,
// hash annotations and change cause (SPEC §6). The revision keeps its custom versions, because injection may
// be pinned to a custom version. A second call changes nothing.
func MakeLatest(on *appsv1.ControllerRevision, set *v1alpha1.SidecarSet, number int64) {
	on.Revision = number
	Adopt(on, set)
	on.Labels = with(on.Labels, v1alpha1.SidecarSetNameLabel, set.Name)
	addCustomVersion(on, CustomVersion(set))
	for _, key := range []string{v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation, v1alpha1.ChangeCauseAnnotation} {
		on.Annotations = with(on.Annotations, key, set.Annotations[key])
	}
}

// Adopt makes a SidecarSet the controller of a revision. The revision has no controller yet, or
// its controller is a deleted SidecarSet with the same name.
func Adopt(on *appsv1.ControllerRevision, set *v1alpha1.SidecarSet) {
	if metav1.IsControlledBy(on, set) {
		return
	}
	on.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(),
		Kind:       OwnerKind,
		Name:       set.Name,
		UID:        set.UID,
		Controller: new(true),
	}}
}

// with adds a key unless the value is empty.
func with(onto map[string]string, key, value string) map[string]string {
	if value == "" {
		return onto
	}
	if onto == nil {
		onto = map[string]string{}
	}
	onto[key] = value
	return onto
}

// Current returns the name of the revision of the current content. If status is up to date, the name is the
// latest revision in status. Otherwise, the name is computed from the content.
func Current(set *v1alpha1.SidecarSet) (string, error) {
	if status := &set.Status; status.ObservedGeneration == set.Generation && status.LatestRevision != "" {
		return status.LatestRevision, nil
	}
	return Name(set)
}
