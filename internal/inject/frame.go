package inject

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// frame is a container encoded once for many pods. What pods differ in are the
// ends of three lists.
type frame struct {
	// head lacks the lists and the last brace.
	head                 []byte
	env, mounts, devices elements
}

// elements are the encoded first ones of a list.
type elements struct {
	encoded []byte
	count   int
}

func newFrame(container corev1.Container) (*frame, error) {
	made := &frame{}
	var err error
	if made.env, err = encodeElements(container.Env); err != nil {
		return nil, err
	}
	if made.mounts, err = encodeElements(container.VolumeMounts); err != nil {
		return nil, err
	}
	if made.devices, err = encodeElements(container.VolumeDevices); err != nil {
		return nil, err
	}
	container.Env, container.VolumeMounts, container.VolumeDevices = nil, nil, nil
	whole, err := json.Marshal(&container)
	if err != nil {
		return nil, fmt.Errorf("encode container %s: %w", container.Name, err)
	}
	made.head = whole[:len(whole)-1]
	return made, nil
}

// encodeElements encodes a list without its brackets.
func encodeElements[T any](list []T) (elements, error) {
	if len(list) == 0 {
		return elements{}, nil
	}
	encoded, err := json.Marshal(list)
	if err != nil {
		return elements{}, fmt.Errorf("encode a container: %w", err)
	}
	return elements{encoded[1 : len(encoded)-1], len(list)}, nil
}

// addition is an injected container.
type addition struct {
	corev1.Container
	// frame is nil when the container has nothing but its name in common with
	// what it becomes in other pods.
	frame *frame
}

// append encodes the container.
func (a *addition) append(into []byte) ([]byte, error) {
	if a.frame == nil {
		return appendJSON(into, &a.Container)
	}
	into = append(into, a.frame.head...)
	into, err := appendList(into, "env", a.frame.env, a.Env)
	if err != nil {
		return nil, err
	}
	if into, err = appendList(into, "volumeMounts", a.frame.mounts, a.VolumeMounts); err != nil {
		return nil, err
	}
	if into, err = appendList(into, "volumeDevices", a.frame.devices, a.VolumeDevices); err != nil {
		return nil, err
	}
	return append(into, '}'), nil
}

// appendList encodes a field whose first elements are encoded already.
func appendList[T any](into []byte, name string, first elements, list []T) ([]byte, error) {
	if len(list) == 0 {
		return into, nil
	}
	into = append(into, `,"`...)
	into = append(into, name...)
	into = append(into, `":[`...)
	into = append(into, first.encoded...)
	more, err := encodeElements(list[first.count:])
	if err != nil {
		return nil, err
	}
	if first.count > 0 && more.count > 0 {
		into = append(into, ',')
	}
	return append(append(into, more.encoded...), ']'), nil
}
