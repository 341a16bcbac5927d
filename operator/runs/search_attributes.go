package runs

import (
	"context"
	"fmt"
	"maps"
	"slices"

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

func (c *connection) registerAttributes(ctx context.Context) error {
	service := c.client.OperatorService()
	known, err := call(ctx, c, "ListSearchAttributes", service.ListSearchAttributes, &operatorservice.ListSearchAttributesRequest{Namespace: c.namespace})
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
	_, err = call(ctx, c, "AddSearchAttributes", service.AddSearchAttributes,
		&operatorservice.AddSearchAttributesRequest{Namespace: c.namespace, SearchAttributes: missing})
	if err != nil && !is[*serviceerror.AlreadyExists](err) {
		return fmt.Errorf("add search attributes: %w", err)
	}
	c.log.Info("registered search attributes", "names", slices.Sorted(maps.Keys(missing)))
	return nil
}
