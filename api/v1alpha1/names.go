package v1alpha1

// These are the annotations of pods, SidecarSets, revisions and Leases (SPEC §2), and related names.
const (
	// HashAnnotation of a SidecarSet contains the hash of its content. HashAnnotation of a pod is a JSON object
	// with an entry for each SidecarSet. The entry contains the hash and the revision of the content that the
	// pod has.
	HashAnnotation = "kruise.io/sidecarset-hash"
	// HashWithoutImageAnnotation contains the hash of the content with empty images.
	HashWithoutImageAnnotation = "kruise.io/sidecarset-hash-without-image"
	// InjectedListAnnotation is the sorted, comma-separated list of the SidecarSets
	// that are injected into a pod.
	InjectedListAnnotation = "kruise.io/sidecarset-injected-list"
	// InPlaceUpdateStateAnnotation records the changes of the last in-place upgrade
	// of a pod.
	InPlaceUpdateStateAnnotation = "kruise.io/sidecarset-inplace-update-state"
	// UnavailableSinceAnnotation is a JSON object that maps the name of a SidecarSet to the transition time of
	// the pod's Ready condition. The object has an entry for each SidecarSet that upgraded the pod while the
	// pod was unavailable (SPEC §7.5).
	UnavailableSinceAnnotation = "outrigger.io/sidecarset-unavailable-since"
	// ResizeAnnotation is a JSON object that maps the name of a SidecarSet to the hash of the content of its
	// last resize of the pod, including a resize in progress (SPEC §7.9).
	ResizeAnnotation = "outrigger.io/sidecarset-resize"
	// RolloutLeasePrefix, followed by the name of a SidecarSet, is the name of the Lease of the rollouts of
	// the SidecarSet.
	RolloutLeasePrefix = "outrigger-rollout-"
	// NextHolderAnnotation is on the Lease of a rollout. The annotation names the run that takes over the
	// Lease from the holder.
	NextHolderAnnotation = "outrigger.io/next-holder"
	// StageChangedAnnotation is on the Lease of a rollout. A worker changes the value of the annotation if
	// the status of the SidecarSet does not show the stage of the run, or does not show whether the run is
	// paused. The change makes the operator read the run immediately.
	StageChangedAnnotation = "outrigger.io/stage-changed"
	// PodUIDAnnotation and TaskTokenAnnotation are on the Lease of a rollout. PodUIDAnnotation contains the
	// uid of the worker pod that runs the current batch. TaskTokenAnnotation contains the activity task token
	// of the batch in base64.
	PodUIDAnnotation    = "outrigger.io/pod-uid"
	TaskTokenAnnotation = "outrigger.io/task-token"
	// FindPods separates the cause from the command that lists the pods of the webhook, in a message of
	// ReasonWebhookUnavailable.
	FindPods = "; find its pods: "
	// FaultAnnotation is on the Lease of the operator while Temporal or the workers do not respond, even if
	// no rollout is in progress. The annotation contains ReasonTemporalUnavailable or
	// ReasonWorkerUnavailable, a colon, a space, and the cause.
	FaultAnnotation = "outrigger.io/fault"
	// FreezeSinceAnnotation is on the RolloutFreeze of a fleet. The annotation contains the time at which the freeze of
	// the fleet began.
	FreezeSinceAnnotation = "outrigger.io/freeze-since"
	// CustomVersionsAnnotation contains the former custom versions of a revision, separated by commas.
	CustomVersionsAnnotation = "outrigger.io/sidecarset-custom-versions"
	// ChangeCauseAnnotation of a SidecarSet contains the reason of the last change of the content. The
	// revision of the content has a copy of the annotation, like a ReplicaSet of a Deployment.
	ChangeCauseAnnotation = "kubernetes.io/change-cause"
	// WorkingHotUpgradeContainerAnnotation maps hot sidecars to their active twins.
	WorkingHotUpgradeContainerAnnotation = "kruise.io/sidecarset-working-hotupgrade-container"
	// VersionAnnotationPrefix and VersionAltAnnotationPrefix are followed by the name of a hot container. The
	// first annotation contains the version of the container, and the second annotation contains the version of
	// its twin.
	VersionAnnotationPrefix    = "version.sidecarset.kruise.io/"
	VersionAltAnnotationPrefix = "versionalt.sidecarset.kruise.io/"
)

// These are the labels of revisions, SidecarSets and namespaces.
const (
	// SidecarSetNameLabel is on every ControllerRevision of a SidecarSet.
	SidecarSetNameLabel = "kruise.io/sidecarset-name"
	// CustomVersionLabel contains the custom version of a SidecarSet. The revision of the
	// SidecarSet has the same label. CustomVersionsAnnotation of the revision contains the former custom
	// versions.
	CustomVersionLabel = "apps.kruise.io/sidecarset-custom-version"
	// InjectionLabel with the value InjectionDisabled on a namespace disables the
	// pod webhook for that namespace.
	InjectionLabel    = "outrigger.io/injection"
	InjectionDisabled = "disabled"
)

// These environment variables are set in injected containers.
const (
	InjectedEnv   = "IS_INJECTED"
	VersionEnv    = "SIDECARSET_VERSION"
	VersionAltEnv = "SIDECARSET_VERSION_ALT"
)

// UpgradableCondition is the pod condition that reports whether every injected
// SidecarSet can upgrade the pod in place (SPEC §7.2).
const UpgradableCondition = "SidecarSetUpgradable"

// These are the default namespace of revisions and configuration, the name of the configuration,
// and a key of the configuration.
const (
	DefaultSystemNamespace = "kruise-system"
	ConfigurationName      = "kruise-configuration"
	MetadataWhitelistKey   = "SidecarSet_PatchPodMetadata_WhiteList"
)

// These are the conditions of a SidecarSet (SPEC §8).
const (
	ConditionProgressing = "Progressing"
	ConditionAvailable   = "Available"
	ConditionDegraded    = "Degraded"
	// ConditionInjected is False while matching pods are not injected, or while new pods would not be
	// injected. A paused injection does not set ConditionInjected to False.
	ConditionInjected = "Injected"
	// ConditionReady is True once the rollout of the generation has ended, or if the update type is
	// NotUpdate. ConditionStalled is True while the rollout cannot end unless a user changes something (SPEC
	// 8.8).
	ConditionReady   = "Ready"
	ConditionStalled = "Stalled"
)

// These are the reasons of the conditions of a SidecarSet.
const (
	ReasonPaused            = "Paused"
	ReasonNotUpdate         = "NotUpdate"
	ReasonPartitionReached  = "PartitionReached"
	ReasonRolloutComplete   = "RolloutComplete"
	ReasonRolloutProgress   = "RolloutInProgress"
	ReasonWaitingForPods    = "WaitingForPods"
	ReasonBaking            = "Baking"
	ReasonAwaitingApproval  = "AwaitingApproval"
	ReasonGateRunning       = "GateRunning"
	ReasonGateInconclusive  = "GateInconclusive"
	ReasonRollingBack       = "RollingBack"
	ReasonQuarantined       = "Quarantined"
	ReasonOutsideWindow     = "OutsideWindow"
	ReasonFrozen            = "Frozen"
	ReasonAwaitingPermit    = "AwaitingPermit"
	ReasonNotUpgradablePods = "NotUpgradablePods"
	// ReasonContainerCannotStart means that sidecars of pods cannot start, and that the image of the sidecars
	// is not the cause.
	ReasonContainerCannotStart = "ContainerCannotStart"
	// ReasonUnreadablePods means that annotations of pods cannot be parsed.
	ReasonUnreadablePods = "UnreadablePods"
	// ReasonOutdatedHashes means that the API server stored the SidecarSet without calling the webhook, which
	// writes the hash annotations.
	ReasonOutdatedHashes = "OutdatedHashes"
	// ReasonInvalid means that the selectors of the spec cannot be parsed.
	ReasonInvalid = "Invalid"
	// ReasonTemporalUnavailable means that Temporal cannot be reached or rejects rollouts.
	ReasonTemporalUnavailable = "EngineUnavailable"
	// ReasonTemporalThrottled means that Temporal rejects some calls because of the rate limits of Temporal.
	ReasonTemporalThrottled = "EngineThrottled"
	// ReasonWorkerUnavailable means that no worker polls the task queue of the run.
	ReasonWorkerUnavailable = "WorkerUnavailable"
	// ReasonRolloutFailing means that a task of the run has failed several times.
	ReasonRolloutFailing = "RolloutFailing"
	// ReasonRunUnreadable means that the operator cannot decrypt the answers of the run.
	ReasonRunUnreadable      = "RunUnreadable"
	ReasonPodsWithoutSidecar = "PodsWithoutSidecar"
	// ReasonWebhookUnavailable means that API servers cannot call the webhook of pods.
	ReasonWebhookUnavailable = "WebhookUnavailable"
	ReasonAsExpected         = "AsExpected"
)
