package v1alpha1

// Annotations on pods, SidecarSets and revisions (SPEC §2).
const (
	// HashAnnotation holds the hash of a SidecarSet. On a pod it is a JSON object
	// from SidecarSet name to an entry with the hash and the revision of the pod.
	HashAnnotation = "kruise.io/sidecarset-hash"
	// HashWithoutImageAnnotation holds the hash of the content with empty images.
	HashWithoutImageAnnotation = "kruise.io/sidecarset-hash-without-image"
	// InjectedListAnnotation is the sorted, comma-separated list of the SidecarSets
	// that are injected into a pod.
	InjectedListAnnotation = "kruise.io/sidecarset-injected-list"
	// InPlaceUpdateStateAnnotation records the changes of the last in-place upgrade
	// of a pod.
	InPlaceUpdateStateAnnotation = "kruise.io/sidecarset-inplace-update-state"
	// UnavailableSinceAnnotation is a JSON object from SidecarSet name to the
	// transition time of the pod's Ready condition. It has an entry for each
	// SidecarSet that upgraded the pod while the pod was unavailable (SPEC §7.5).
	UnavailableSinceAnnotation = "outrigger.io/sidecarset-unavailable-since"
	// NextHolderAnnotation is on the Lease of a rollout. It names the run that
	// takes over the Lease from the holder.
	NextHolderAnnotation = "outrigger.io/next-holder"
	// PodUIDAnnotation and TaskTokenAnnotation are on the same Lease. They identify
	// the worker that runs the current batch, by the uid of its pod, and the batch,
	// by its activity task token in base64.
	PodUIDAnnotation    = "outrigger.io/pod-uid"
	TaskTokenAnnotation = "outrigger.io/task-token"
	// CustomVersionsAnnotation holds the custom versions of a revision other than
	// the one in its label, comma-separated.
	CustomVersionsAnnotation = "outrigger.io/sidecarset-custom-versions"
	// WorkingHotUpgradeContainerAnnotation maps hot sidecars to their active twins.
	WorkingHotUpgradeContainerAnnotation = "kruise.io/sidecarset-working-hotupgrade-container"
	// VersionAnnotationPrefix and VersionAltAnnotationPrefix, followed by the name of
	// a hot container, are the keys of its own version and of its twin's version.
	VersionAnnotationPrefix    = "version.sidecarset.kruise.io/"
	VersionAltAnnotationPrefix = "versionalt.sidecarset.kruise.io/"
)

// Labels.
const (
	// SidecarSetNameLabel is on every ControllerRevision of a SidecarSet.
	SidecarSetNameLabel = "kruise.io/sidecarset-name"
	// CustomVersionLabel holds the custom version of a SidecarSet. Its revision has
	// the same label, unless the revision already had another custom version: see
	// CustomVersionsAnnotation.
	CustomVersionLabel = "apps.kruise.io/sidecarset-custom-version"
	// InjectionLabel with the value InjectionDisabled on a namespace disables the
	// pod webhook for that namespace.
	InjectionLabel    = "outrigger.io/injection"
	InjectionDisabled = "disabled"
)

// Environment variables of injected containers.
const (
	InjectedEnv   = "IS_INJECTED"
	VersionEnv    = "SIDECARSET_VERSION"
	VersionAltEnv = "SIDECARSET_VERSION_ALT"
)

// UpgradableCondition is the pod condition that reports whether every injected
// SidecarSet can upgrade the pod in place (SPEC §7.2).
const UpgradableCondition = "SidecarSetUpgradable"

// Default namespace of revisions and configuration, and the names of the latter.
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
	// ConditionInjected is False while matching pods are not injected.
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
	// ReasonUnreadablePods: annotations of pods cannot be parsed.
	ReasonUnreadablePods = "UnreadablePods"
	// ReasonOutdatedHashes: the SidecarSet was stored without the webhook.
	ReasonOutdatedHashes = "OutdatedHashes"
	// ReasonInvalid: the selectors of the spec cannot be parsed.
	ReasonInvalid = "Invalid"
	// ReasonTemporalUnavailable: Temporal cannot be reached or rejects rollouts.
	ReasonTemporalUnavailable = "EngineUnavailable"
	// ReasonTemporalThrottled: Temporal rejects some calls because of its rate limits.
	ReasonTemporalThrottled = "EngineThrottled"
	// ReasonWorkerUnavailable: no worker polls the task queue of the run.
	ReasonWorkerUnavailable = "WorkerUnavailable"
	// ReasonRolloutFailing: the tasks of the run fail repeatedly.
	ReasonRolloutFailing = "RolloutFailing"
	// ReasonRunUnreadable: the operator cannot decrypt the answers of the run.
	ReasonRunUnreadable      = "RunUnreadable"
	ReasonPodsWithoutSidecar = "PodsWithoutSidecar"
	// ReasonWebhookUnavailable says that API servers cannot call the webhook of pods.
	ReasonWebhookUnavailable = "WebhookUnavailable"
	ReasonAsExpected         = "AsExpected"
)
