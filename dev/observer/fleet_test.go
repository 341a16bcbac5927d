package observer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestFleetFindsAWrongOrder(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1000+int64(seconds), 0) }
	pod := func(seconds int, cluster string) fleetEvent {
		return fleetEvent{at: at(seconds), cluster: cluster, image: "side:v2", pod: "edge-1"}
	}
	delivered := fleetEvent{at: at(0), cluster: "rest", image: "side:v2"}
	completed := func(seconds int, cluster string) fleetEvent {
		return fleetEvent{at: at(seconds), cluster: cluster, image: "side:v2", completed: true}
	}
	canary := []fleetEvent{delivered, pod(1, "canary"), completed(2, "canary")}
	eu := append(append([]fleetEvent{}, canary...), pod(5, "eu-1"), pod(6, "eu-2"), completed(7, "eu-1"), completed(8, "eu-2"))
	removed := map[string][]interval{"eu-2": {{from: at(1), until: at(30)}}, "canary": {{from: at(-20), until: at(-10)}}}
	for name, c := range map[string]struct {
		events []fleetEvent
		away   map[string][]interval
		wrong  string
	}{
		"in order":                  {append(append([]fleetEvent{}, eu...), pod(11, "rest")), nil, ""},
		"initial content":           {[]fleetEvent{{at: at(0), cluster: "rest", image: "side:v1", pod: "edge-1"}}, nil, ""},
		"not begun":                 {[]fleetEvent{delivered, pod(9, "rest")}, nil, "canary of an earlier stage had not completed"},
		"not completed":             {[]fleetEvent{delivered, pod(1, "canary"), pod(9, "eu-1")}, nil, "canary of an earlier stage had not completed"},
		"one of two not completed":  {append(append([]fleetEvent{}, canary...), completed(7, "eu-1"), pod(30, "rest")), nil, "eu-2 of an earlier stage had not completed"},
		"bakes":                     {append(append([]fleetEvent{}, canary...), pod(4, "eu-1")), nil, "2s before, with a bake time of 3s"},
		"the last one bakes":        {append(append([]fleetEvent{}, eu...), pod(10, "rest")), nil, "2s before, with a bake time of 3s"},
		"an earlier stage skipped":  {[]fleetEvent{delivered, completed(1, "eu-1"), completed(1, "eu-2"), pod(9, "rest")}, nil, "canary of an earlier stage"},
		"removed":                   {append(append([]fleetEvent{}, canary...), completed(7, "eu-1"), pod(12, "rest")), removed, ""},
		"removed, and others bake":  {append(append([]fleetEvent{}, canary...), completed(7, "eu-1"), pod(9, "rest")), removed, "2s before"},
		"nobody else has completed": {append(append([]fleetEvent{}, canary...), pod(12, "rest")), map[string][]interval{"eu-1": {{from: at(1)}}, "eu-2": {{from: at(1)}}}, "none of the clusters"},
		"away too briefly":          {[]fleetEvent{delivered, pod(9, "eu-1")}, map[string][]interval{"canary": {{from: at(9), until: at(4)}}}, "canary of an earlier stage"},
		"away later":                {[]fleetEvent{delivered, pod(9, "eu-1")}, map[string][]interval{"canary": {{from: at(10)}}}, "canary of an earlier stage"},
		"away before":               {[]fleetEvent{delivered, pod(9, "eu-1")}, removed, "canary of an earlier stage"},
	} {
		f := Fleet{
			stages:  []FleetStage{{[]string{"canary"}, 3 * time.Second}, {[]string{"eu-1", "eu-2"}, 3 * time.Second}, {[]string{"rest"}, 0}},
			initial: "side:v1", contents: map[string]*fleetContent{}, away: c.away,
		}
		wrong := ""
		for _, e := range c.events {
			wrong += f.next(e)
		}
		if c.wrong == "" {
			assert.Empty(t, wrong, name)
		} else {
			assert.Contains(t, wrong, c.wrong, name)
		}
	}
}
