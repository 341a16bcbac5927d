package integration

import (
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

func unpack(payload *common.Payload, into any) error {
	return converter.GetDefaultDataConverter().FromPayload(payload, into)
}
