package fleet

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// StageState is the state of a stage, as shown to users.
type StageState string

// These are the states of stages. A stopped stage has failed, or was paused or aborted.
const (
	StageNext             StageState = "next"
	StageInProgress       StageState = "in progress"
	StageBaking           StageState = "baking"
	StageMeasuring        StageState = "measuring"
	StageAwaitingApproval StageState = "awaiting approval"
	StageStopped          StageState = "stopped"
	StageEnded            StageState = "ended"
)

// approvalNeeded is the value of Approval for a stage that needs an approval and is not approved.
const approvalNeeded = "needed"

// Stage describes a stage of a rollout across many clusters for users.
type Stage struct {
	// Name is empty if the Stage contains the clusters that match no stage of the policy.
	Name  string     `json:"name,omitempty"`
	State StageState `json:"state"`
	// WaitsFor is the condition for the start or the end of the stage. WaitsFor is empty after the end of the
	// stage.
	WaitsFor string `json:"waitsFor,omitempty"`
	// MaxConcurrentClusters is the maximum number of clusters that roll out at the same time, or 0 without a
	// limit.
	MaxConcurrentClusters int `json:"maxConcurrentClusters,omitempty"`
	// Bake is the bake time, such as 1h0m0s. BakesUntil is the end of the bake time, and nil before the bake
	// time begins.
	Bake       string     `json:"bake,omitempty"`
	BakesUntil *time.Time `json:"bakesUntil,omitempty"`
	// Gates are the gates of the stage in their order. After the end of the stage, Gates contains only
	// the names of the gates.
	Gates []protocol.GateState `json:"gates,omitempty"`
	// Approval is empty if the stage needs no approval. Otherwise, Approval is "needed" or names the
	// approver, such as "by ann".
	Approval  string `json:"approval,omitempty"`
	Completed int    `json:"completed"`
	// Clusters are sorted by name, which is the order of their rollouts.
	Clusters []*protocol.FleetCluster `json:"clusters,omitempty"`
}

// Title returns the name of the stage, or "-" for a stage without a name.
func (s *Stage) Title() string { return cmp.Or(s.Name, "-") }

// Stages returns the stages of a rollout with their clusters. If clusters match no stage, the last Stage has no
// name and contains these clusters.
func Stages(s *protocol.FleetState, now time.Time) []Stage {
	stages := make([]Stage, len(s.Spec.Stages), len(s.Spec.Stages)+1)
	for i := range s.Spec.Stages {
		stages[i].Name = s.Spec.Stages[i].Name
	}
	for _, uid := range sorted(s) {
		cluster := s.Clusters[uid]
		if cluster.Stage < 0 || cluster.Stage > len(s.Spec.Stages) {
			continue // the workflow has not read the plan of the newest content yet
		}
		if cluster.Stage == len(stages) {
			stages = append(stages, Stage{})
		}
		stage := &stages[cluster.Stage]
		if stage.Clusters = append(stage.Clusters, cluster); cluster.State == protocol.ClusterCompleted {
			stage.Completed++
		}
	}
	for i := range stages {
		describe(s, stages, i, now)
	}
	return stages
}

// describe sets the fields of stages[i] that depend on the policy and on the state. The clusters of
// stages[i] must be set.
func describe(s *protocol.FleetState, stages []Stage, i int, now time.Time) {
	stage := &stages[i]
	var spec outriggerv1.FleetStage
	if i < len(s.Spec.Stages) {
		spec = s.Spec.Stages[i]
	}
	if spec.MaxConcurrentClusters != nil {
		stage.MaxConcurrentClusters = limitOf(spec.MaxConcurrentClusters, len(stage.Clusters))
	}
	if spec.Bake != nil {
		stage.Bake = spec.Bake.Duration.String()
	}
	if spec.Approval != nil {
		stage.Approval = approvalNeeded
	}
	begun := s.Hash != ""
	stage.Gates = gatesOf(s, &spec, i)
	if begun && i == s.Stage {
		describeCurrent(s, stage, &spec, now)
		return
	}
	switch {
	case begun && i < s.Stage:
		stage.State = StageEnded
	case i > 0:
		stage.State, stage.WaitsFor = StageNext, "the end of stage "+stages[i-1].Name
	default:
		stage.State, stage.WaitsFor = StageNext, "content that a cluster reports"
	}
}

// describeCurrent describes the current stage. After the last stage of the policy, the Stage with the clusters
// that match no stage is the current stage.
func describeCurrent(s *protocol.FleetState, stage *Stage, spec *outriggerv1.FleetStage, now time.Time) {
	if stage.Approval != "" && s.Approval != nil {
		stage.Approval = "by " + cmp.Or(s.Approval.By, "unknown")
	}
	if s.Reached != nil && spec.Bake != nil {
		stage.BakesUntil = new(s.Reached.Add(spec.Bake.Duration))
	}
	stage.State, stage.WaitsFor = StageInProgress, s.Message
	switch {
	case s.Phase == protocol.FleetThrough && stage.Completed == len(stage.Clusters):
		stage.State, stage.WaitsFor = StageEnded, ""
	case s.Phase == protocol.FleetThrough:
		stage.WaitsFor = "the clusters that have not completed"
	case s.Phase != protocol.FleetRolling:
		stage.State = StageStopped
	case stage.BakesUntil != nil && stage.BakesUntil.After(now):
		stage.State = StageBaking
	case s.Reached != nil && openGate(s) != nil:
		stage.State = StageMeasuring
	case s.Reached != nil && stage.Approval == approvalNeeded:
		stage.State = StageAwaitingApproval
	}
}

// Preview is the plan of a rollout across many clusters, with the current members of the fleet.
type Preview struct {
	Set string `json:"set"`
	// Hash, Attempt and Phase describe the rollout in progress. Without a rollout in progress, the plan is
	// for the next content.
	Hash    string              `json:"hash,omitempty"`
	Attempt int                 `json:"attempt,omitempty"`
	Phase   protocol.FleetPhase `json:"phase,omitempty"`
	// Policy is empty if no policy matches the SidecarSet.
	Policy string `json:"policy,omitempty"`
	// Message describes the whole rollout, for example that no policy matches the SidecarSet.
	Message string `json:"message,omitempty"`
	// Freeze is the freeze of the fleet, if any.
	Freeze *protocol.FleetFreeze `json:"freeze,omitempty"`
	Stages []Stage               `json:"stages,omitempty"`
}

// Plan returns the plan of a rollout. A rollout in progress keeps its policy (SPEC 12.2.3). After the end
// of all stages, the plan is for the next content. Plan changes the clusters of s.
func Plan(s *protocol.FleetState, registry *protocol.FleetRegistry, now time.Time) Preview {
	if s.Hash == "" || s.Phase == protocol.FleetThrough {
		s = &protocol.FleetState{Set: s.Set, Clusters: s.Clusters}
		for _, uid := range Keys(s.Clusters) {
			s.Clusters[uid].State, s.Clusters[uid].Reason = protocol.ClusterPending, ""
		}
	}
	plan := PlanOf(s.Set, registry)
	Adopt(s, &plan, false)
	p := Preview{Set: s.Set, Hash: s.Hash, Attempt: s.Attempt, Phase: s.Phase, Policy: s.Policy, Stages: Stages(s, now)}
	if s.Stage >= len(p.Stages) {
		p.Message = s.Message // no Stage contains the message
	}
	if freeze := registry.Freeze; freeze != nil && freeze.Frozen && (freeze.Until == nil || freeze.Until.After(now)) {
		p.Freeze = freeze
	}
	switch {
	case p.Policy != "" || p.Message != "":
	case len(registry.Policies) == 0:
		p.Message = "the fleet has no FleetPolicy and gives no permits; apply one with outrigger fleet apply"
	case s.Hash == "":
		p.Message = "no FleetPolicy matches, so all clusters roll out at once"
	}
	return p
}

// History contains the events of the rollouts of a SidecarSet. The newest event is last.
type History struct {
	Set    string                `json:"set"`
	Events []protocol.FleetEvent `json:"events,omitempty"`
	// Contents contains earlier contents with their verdicts. The last element is the current content with its
	// phase.
	Contents []protocol.FleetVerdict `json:"contents,omitempty"`
}

// HistoryOf returns the history in the state of a rollout.
func HistoryOf(s *protocol.FleetState) History {
	h := History{Set: s.Set, Events: s.Events}
	h.Contents = slices.DeleteFunc(slices.Clone(s.Verdicts), func(v protocol.FleetVerdict) bool { return v.Hash == s.Hash })
	if s.Hash != "" {
		h.Contents = append(h.Contents, protocol.FleetVerdict{Hash: s.Hash, Phase: s.Phase})
	}
	return h
}

// Ended returns the phase in which the rollout of content ended, or "" if the rollout or the rollback of the
// content has not ended, or if no cluster has reported the content. A paused rollout counts as ended, because
// only a person can continue the rollout. Other content does not end a rollback.
func Ended(s *protocol.FleetState, hash string) protocol.FleetPhase {
	rollsBack := func(uid string) bool {
		undo := s.Clusters[uid].Undo
		return undo != nil && undo.Hash == hash
	}
	switch {
	case slices.ContainsFunc(Keys(s.Clusters), rollsBack):
		return ""
	case s.Hash != hash:
		return VerdictOf(s, hash)
	}
	switch s.Phase {
	case protocol.FleetPaused, protocol.FleetFailed, protocol.FleetThrough:
		return s.Phase
	}
	return ""
}

// Places returns the maximum number of clusters of a stage that roll out at the same time, or "all".
func (s *Stage) Places() string {
	if s.MaxConcurrentClusters == 0 {
		return "all"
	}
	return strconv.Itoa(s.MaxConcurrentClusters)
}

// GateWords returns a text that describes the gates of a stage.
func (s *Stage) GateWords() string {
	words := make([]string, len(s.Gates))
	for i, gate := range s.Gates {
		words[i] = gate.Name
		if gate.Phase != "" {
			words[i] += ": " + strings.ToLower(string(gate.Phase))
		}
		if gate.Message != "" {
			words[i] += ", " + gate.Message
		}
	}
	return strings.Join(words, "; ")
}

// gatesOf returns the gates of the stage i. The state of a rollout contains only the gates of its current
// stage.
func gatesOf(s *protocol.FleetState, spec *outriggerv1.FleetStage, i int) (gates []protocol.GateState) {
	for _, name := range spec.Gates {
		state := protocol.GateOf(s.Gates, name)
		switch {
		case s.Hash != "" && i < s.Stage:
			state = protocol.GateState{Name: name}
		case s.Hash == "" || i > s.Stage:
			state = protocol.GateState{Name: name, Phase: protocol.GatePending}
		}
		gates = append(gates, state)
	}
	return gates
}
