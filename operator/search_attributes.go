package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/converter"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/temporal"
)

// attributesOf returns the search attributes that a run starts with.
func attributesOf(set string, generation int64, phase protocol.Phase) (*common.SearchAttributes, error) {
	fields := map[string]*common.Payload{}
	for key, value := range map[string]any{
		protocol.SidecarSetAttribute:   set,
		protocol.GenerationAttribute:   generation,
		protocol.RolloutPhaseAttribute: string(phase),
	} {
		payload, err := converter.GetDefaultDataConverter().ToPayload(value)
		if err != nil {
			return nil, fmt.Errorf("encode search attribute %s: %w", key, err)
		}
		payload.Metadata["type"] = []byte(temporal.SearchAttributes()[key].String())
		fields[key] = payload
	}
	return &common.SearchAttributes{IndexedFields: fields}, nil
}

// ensureAttributes registers missing search attributes, once after each time that
// Temporal was unreachable: it may have come back empty. Where the operator may not do
// that, somebody else has to; otherwise the start of a rollout fails.
func (c *rolloutClient) ensureAttributes(ctx context.Context) {
	c.mu.Lock()
	done := c.attributesEnsured
	c.attributesEnsured = true
	c.mu.Unlock()
	if done {
		return
	}
	if err := c.registerAttributes(ctx); err != nil {
		if isThrottle(err) {
			c.update(func() { c.attributesEnsured = false })
			return
		}
		c.log.Info("cannot make sure that the search attributes are registered", "cause", err.Error(),
			"remedy", attributesRemedy(c.address, c.namespace))
	}
}

func (c *rolloutClient) registerAttributes(ctx context.Context) error {
	service := c.client.OperatorService()
	var known *operatorservice.ListSearchAttributesResponse
	err := c.call(ctx, "ListSearchAttributes", func(short context.Context) (err error) {
		known, err = service.ListSearchAttributes(short, &operatorservice.ListSearchAttributesRequest{Namespace: c.namespace})
		return err
	})
	if err != nil {
		return fmt.Errorf("list search attributes: %w", err)
	}
	missing := temporal.SearchAttributes()
	for name := range known.GetCustomAttributes() {
		delete(missing, name)
	}
	if len(missing) == 0 {
		return nil
	}
	err = c.call(ctx, "AddSearchAttributes", func(short context.Context) error {
		_, err := service.AddSearchAttributes(short, &operatorservice.AddSearchAttributesRequest{Namespace: c.namespace, SearchAttributes: missing})
		return err
	})
	var exists *serviceerror.AlreadyExists
	if err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("add search attributes: %w", err)
	}
	c.log.Info("registered search attributes", "names", slices.Sorted(maps.Keys(missing)))
	return nil
}

// attributesRemedy returns the command that registers the attributes by hand.
func attributesRemedy(address, namespace string) string {
	arguments := []string{"temporal operator search-attribute create --address", address, "--namespace", namespace}
	all := temporal.SearchAttributes()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		arguments = append(arguments, "--name", name, "--type", all[name].String())
	}
	return strings.Join(arguments, " ")
}
