package observer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// The API server stores SidecarSets and pods under these keys. One watch of one range returns the writes of
// both kinds in the order of the writes.
const (
	setsPrefix = "/registry/apps.kruise.io/sidecarsets/"
	podsPrefix = "/registry/pods/"
	rangeEnd   = "/registry/pods0"
)

// reconnectAgain is the time between two attempts to connect to etcd.
const reconnectAgain = 100 * time.Millisecond

// event is a write or the deletion of one object.
type event struct {
	object  client.Object
	seen    time.Time
	deleted bool
}

// watchResponse is a message of the JSON gateway of etcd.
type watchResponse struct {
	Result struct {
		Canceled     bool   `json:"canceled"`
		CancelReason string `json:"cancel_reason"`
		Events       []struct {
			Type   string   `json:"type"`
			KV     keyValue `json:"kv"`
			PrevKV keyValue `json:"prev_kv"`
		} `json:"events"`
	} `json:"result"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
}

type keyValue struct {
	Key         []byte `json:"key"`
	Value       []byte `json:"value"`
	ModRevision uint64 `json:"mod_revision,string"`
}

// watch calls observe for every write of SidecarSets and pods since the start of the cluster, in the order of
// the writes, until ctx ends. The source of the writes is etcd, so watch misses no write while the API server
// is down. After a lost connection, watch continues with the next write.
func watch(ctx context.Context, etcd string, observe func(event)) error {
	for next := uint64(1); ctx.Err() == nil; {
		if err := watchFrom(ctx, etcd, &next, observe); err != nil {
			return err
		}
		select {
		case <-time.After(reconnectAgain):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// watchFrom watches from the revision *next, and sets *next to the revision after the last write. If
// the connection is lost, watchFrom returns nil.
func watchFrom(ctx context.Context, etcd string, next *uint64, observe func(event)) error {
	body, err := json.Marshal(map[string]any{"create_request": map[string]any{
		"key": []byte(setsPrefix), "range_end": []byte(rangeEnd), "start_revision": *next, "prev_kv": true,
	}})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, etcd+"/v3/watch", strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	for stream := json.NewDecoder(response.Body); ; {
		var message watchResponse
		if err := stream.Decode(&message); err != nil {
			return nil
		}
		if message.Result.Canceled || message.Error.Message != "" {
			return errors.New("etcd ended it: " + message.Result.CancelReason + message.Error.Message)
		}
		for _, change := range message.Result.Events {
			e := event{seen: time.Now(), deleted: change.Type == "DELETE"}
			value := change.KV.Value
			if e.deleted {
				value = change.PrevKV.Value
			}
			if e.object, err = decode(string(change.KV.Key), value); err != nil {
				return err
			}
			if e.object != nil {
				e.object.SetResourceVersion(strconv.FormatUint(change.KV.ModRevision, 10))
				observe(e)
			}
			*next = change.KV.ModRevision + 1
		}
	}
}

// decode returns the object of a key and a value. For other kinds of objects, decode returns nil.
func decode(key string, value []byte) (object client.Object, err error) {
	switch {
	case strings.HasPrefix(key, podsPrefix):
		object = &corev1.Pod{}
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(value, nil, object)
	case strings.HasPrefix(key, setsPrefix):
		set := &v1alpha1.SidecarSet{}
		object, err = set, json.Unmarshal(value, set)
		if err == nil && set.APIVersion != v1alpha1.GroupVersion.String() {
			err = errors.New("it is stored as " + set.APIVersion)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return object, nil
}
