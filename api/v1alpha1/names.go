package v1alpha1

// Annotations on pods, SidecarSets and revisions (SPEC §2).
const (
	// HashAnnotation carries the hash of a SidecarSet. On a pod it is a JSON
	// object, set name → entry, which also names the revision that the pod holds.
	HashAnnotation = "kruise.io/sidecarset-hash"
	// HashWithoutImageAnnotation carries the same hash with every image blanked.
	HashWithoutImageAnnotation = "kruise.io/sidecarset-hash-without-image"
	// InjectedListAnnotation lists the sets injected into a pod: comma-joined, sorted.
	InjectedListAnnotation = "kruise.io/sidecarset-injected-list"
	// InPlaceUpdateStateAnnotation records what an in-place upgrade changed in a pod.
	InPlaceUpdateStateAnnotation = "kruise.io/sidecarset-inplace-update-state"
	// UnavailableSinceAnnotation is a JSON object, set name → the transition time
	// of the pod's Ready condition, for sets that upgraded the pod while it was
	// not available (SPEC §7.5).
	UnavailableSinceAnnotation = "outrigger.io/sidecarset-unavailable-since"
	// NextHolderAnnotation names, on the Lease of a set's rollout, the run that
	// is taking over from the holder.
	NextHolderAnnotation = "outrigger.io/next-holder"
	// PodUIDAnnotation and TaskTokenAnnotation say, on that Lease, which worker has the
	// batch in hand, by the uid of its pod, and which one that is, in base64.
	PodUIDAnnotation    = "outrigger.io/pod-uid"
	TaskTokenAnnotation = "outrigger.io/task-token"
	// CustomVersionsAnnotation is on a revision that is known by more custom
	// versions than the one that its label holds: the others, comma-joined.
	CustomVersionsAnnotation = "outrigger.io/sidecarset-custom-versions"
	// WorkingHotUpgradeContainerAnnotation maps a hot sidecar to its active twin.
	WorkingHotUpgradeContainerAnnotation = "kruise.io/sidecarset-working-hotupgrade-container"
	// VersionAnnotationPrefix and VersionAltAnnotationPrefix precede a hot
	// container's name: its own version, and that of its twin.
	VersionAnnotationPrefix    = "version.sidecarset.kruise.io/"
	VersionAltAnnotationPrefix = "versionalt.sidecarset.kruise.io/"
)

// Labels.
const (
	// SidecarSetNameLabel is on every ControllerRevision of a set.
	SidecarSetNameLabel = "kruise.io/sidecarset-name"
	// CustomVersionLabel names a version of a set; its revision carries it too,
	// unless it has that of an earlier one: see CustomVersionsAnnotation.
	CustomVersionLabel = "apps.kruise.io/sidecarset-custom-version"
	// InjectionLabel on a namespace, with the value InjectionDisabled, keeps the
	// pod webhook away from that namespace.
	InjectionLabel    = "outrigger.io/injection"
	InjectionDisabled = "disabled"
)

// Environment variables of injected containers.
const (
	InjectedEnv   = "IS_INJECTED"
	VersionEnv    = "SIDECARSET_VERSION"
	VersionAltEnv = "SIDECARSET_VERSION_ALT"
)

// UpgradableCondition is the pod condition that reports whether every set
// injected into the pod can upgrade it in place (SPEC §7.2).
const UpgradableCondition = "SidecarSetUpgradable"

// Defaults of where revisions and configuration live.
const (
	DefaultSystemNamespace = "kruise-system"
	ConfigurationName      = "kruise-configuration"
	MetadataWhitelistKey   = "SidecarSet_PatchPodMetadata_WhiteList"
)

// Conditions of a SidecarSet (SPEC §8).
const (
	ConditionProgressing = "Progressing"
	ConditionAvailable   = "Available"
	ConditionDegraded    = "Degraded"
	// ConditionInjected is False while pods match the set but lack it.
	ConditionInjected = "Injected"
)

// Reasons of a SidecarSet's conditions.
const (
	ReasonPaused            = "Paused"
	ReasonNotUpdate         = "NotUpdate"
	ReasonPartitionReached  = "PartitionReached"
	ReasonRolloutComplete   = "RolloutComplete"
	ReasonRolloutProgress   = "RolloutInProgress"
	ReasonWaitingForPods    = "WaitingForPods"
	ReasonNotUpgradablePods = "NotUpgradablePods"
	// ReasonInvalid says that the spec does not tell which pods the set has.
	ReasonInvalid = "Invalid"
	// ReasonEngineUnavailable says that Temporal takes no rollouts, and
	// ReasonEngineThrottled that it answers, but not every call.
	ReasonEngineUnavailable = "EngineUnavailable"
	ReasonEngineThrottled   = "EngineThrottled"
	// ReasonWorkerUnavailable says that nobody takes up the run's work, and
	// ReasonRolloutFailing that whoever does fails again and again.
	ReasonWorkerUnavailable = "WorkerUnavailable"
	ReasonRolloutFailing    = "RolloutFailing"
	// ReasonRunUnreadable says that the operator cannot decrypt what the run says.
	ReasonRunUnreadable      = "RunUnreadable"
	ReasonPodsWithoutSidecar = "PodsWithoutSidecar"
	ReasonAsExpected         = "AsExpected"
)
