package activities

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// question is the request body of a webhook gate, and the input of the workflow of a workflow gate.
type question struct {
	SidecarSet string `json:"sidecarSet"`
	Generation int64  `json:"generation"`
	Revision   string `json:"revision"`
	Step       string `json:"step"`
	Pods       int    `json:"pods"`
}

// gateAnswer is the response of a webhook gate, and the result of the workflow of a workflow gate.
type gateAnswer struct {
	Phase   protocol.GatePhase `json:"phase"`
	Message string             `json:"message"`
}

func (m *measurement) question() question {
	return question{SidecarSet: m.input.SidecarSet.Name, Generation: m.input.Generation, Revision: m.revision, Step: m.input.Step, Pods: m.input.Pods}
}

// ask sends the question to the webhook of a gate, and returns the measurement in the response. If the response
// has no known phase, the measurement is inconclusive. If the webhook is unavailable, ask returns an error.
func (m *measurement) ask(ctx context.Context, g *outriggerv1.WebhookGate) (protocol.Measurement, error) {
	body, err := json.Marshal(m.question())
	if err != nil {
		return protocol.Measurement{}, fmt.Errorf("encode the question: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL, bytes.NewReader(body))
	if err != nil {
		return m.invalid("webhook.url", g.URL, withoutURL(err)), nil
	}
	request.Header.Set("Content-Type", "application/json")
	status, answered, err := m.send(ctx, request, g.Credentials)
	if err != nil {
		return protocol.Measurement{}, err
	}
	var answer gateAnswer
	if status != http.StatusOK || json.Unmarshal(answered, &answer) != nil {
		return inconclusive(fmt.Sprintf("the answer of the webhook has the status %d, and no phase", status)), nil
	}
	return answer.measurement(), nil
}

// measurement converts an answer to a measurement. For an unknown phase, the measurement is inconclusive.
func (a gateAnswer) measurement() protocol.Measurement {
	switch a.Phase {
	case protocol.GateSuccess, protocol.GateFailure, protocol.GateInconclusive, protocol.GateRunning:
		return protocol.Measurement{Phase: a.Phase, Message: a.Message}
	}
	return inconclusive(fmt.Sprintf("the answer has the unknown phase %q", a.Phase))
}
