package temporal

import (
	"go.temporal.io/api/enums/v1"

	"github.com/outrigger/outrigger/api/protocol"
)

// SearchAttributes returns the search attributes of every run, which the namespace needs.
func SearchAttributes() map[string]enums.IndexedValueType {
	return map[string]enums.IndexedValueType{
		protocol.SidecarSetAttribute:   enums.INDEXED_VALUE_TYPE_KEYWORD,
		protocol.GenerationAttribute:   enums.INDEXED_VALUE_TYPE_INT,
		protocol.RolloutPhaseAttribute: enums.INDEXED_VALUE_TYPE_KEYWORD,
	}
}
