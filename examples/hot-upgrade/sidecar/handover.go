package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// These are the requests to the serving twin. A request is the first line of a connection to the
// socket of the twin.
const (
	askVersion = "version" // the answer is a line with the version
	askSocket  = "socket"  // the answer is a message with the listening socket, and the successor then sends done
	done       = "done"
)

const (
	askAgainAfter = 100 * time.Millisecond
	// answerWithin is the timeout for a response of the other twin.
	answerWithin = 10 * time.Second
)

var errNotServing = errors.New("no twin serves")

// dial connects to the serving twin. If no twin serves, dial returns errNotServing.
func (h handover) dial(ctx context.Context) (*net.UnixConn, error) {
	connection, err := new(net.Dialer).DialContext(ctx, "unix", h.socket())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, errNotServing
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the other twin: %w", err)
	}
	unix, ok := connection.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("connect to the other twin: it is a %T", connection)
	}
	return unix, unix.SetDeadline(time.Now().Add(answerWithin))
}

// awaitOwn waits until the sidecar in the same container serves. awaitOwn is the postStart hook, so the
// kubelet and the upgrade wait until the sidecar serves.
func (h handover) awaitOwn(ctx context.Context) error {
	for {
		serving, err := h.serving(ctx)
		if err == nil && serving == h.version {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("version %s does not serve yet: %w", h.version, context.Cause(ctx))
		case <-time.After(askAgainAfter):
		}
	}
}

// serving returns the version of the serving twin.
func (h handover) serving(ctx context.Context) (string, error) {
	connection, err := h.dial(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close() }()
	if _, err := fmt.Fprintln(connection, askVersion); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(connection).ReadString('\n')
	return strings.TrimSpace(line), err
}

// takeOver requests the listening socket from the serving twin. The serving twin continues to serve until
// this twin reports that this twin serves.
func takeOver(predecessor *net.UnixConn) (net.Listener, error) {
	if _, err := fmt.Fprintln(predecessor, askSocket); err != nil {
		return nil, fmt.Errorf("ask for the listening socket: %w", err)
	}
	space := make([]byte, syscall.CmsgSpace(4))
	_, n, _, _, err := predecessor.ReadMsgUnix(make([]byte, 1), space)
	if err != nil {
		return nil, fmt.Errorf("receive the listening socket: %w", err)
	}
	messages, err := syscall.ParseSocketControlMessage(space[:n])
	if err != nil {
		return nil, fmt.Errorf("receive the listening socket: %w", err)
	}
	if len(messages) != 1 {
		return nil, errors.New("receive the listening socket: the other twin has none to give")
	}
	sockets, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, fmt.Errorf("receive the listening socket: %w", err)
	}
	file := os.NewFile(uintptr(sockets[0]), "listener")
	defer func() { _ = file.Close() }() // FileListener duplicates the file descriptor.
	return net.FileListener(file)
}

// announce is called when this process serves. If there is a predecessor, announce tells the predecessor to
// stop serving. This process then listens for successors in place of the predecessor.
func (h handover) announce(ctx context.Context, predecessor *net.UnixConn) (*net.UnixListener, error) {
	next := filepath.Join(h.folder, "next.sock")
	successors, err := listenUnix(ctx, next)
	if err != nil {
		return nil, fmt.Errorf("listen for successors: %w", err)
	}
	if predecessor != nil {
		if _, err := fmt.Fprintln(predecessor, done); err != nil {
			log.Println("the other twin has ended meanwhile:", err)
		}
		_ = predecessor.Close()
	}
	if err := os.Rename(next, h.socket()); err != nil {
		return nil, fmt.Errorf("listen for successors: %w", err)
	}
	return successors, nil
}

// listenUnix listens at path. listenUnix first removes a socket of an earlier process at path.
func listenUnix(ctx context.Context, path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	unix, ok := listener.(*net.UnixListener)
	if !ok {
		return nil, fmt.Errorf("%s: a %T", path, listener)
	}
	unix.SetUnlinkOnClose(false) // When this socket is closed, the path belongs to the successor.
	return unix, nil
}

// handOn answers the requests of successors. When a successor reports that the successor serves, handOn
// closes the returned channel.
func (h handover) handOn(successors *net.UnixListener, listener net.Listener) <-chan struct{} {
	taken := make(chan struct{})
	go func() {
		for {
			connection, err := successors.AcceptUnix()
			if err != nil {
				return // The listener is closed when this process ends.
			}
			took, err := h.answer(connection, listener)
			_ = connection.Close()
			if err != nil {
				log.Println("answer a successor:", err)
			}
			if took {
				_ = successors.Close()
				close(taken)
				return
			}
		}
	}()
	return taken
}

// answer answers the request of a successor, and reports whether the successor serves. Without this report, the
// successor has failed, and this twin continues to serve.
func (h handover) answer(connection *net.UnixConn, listener net.Listener) (took bool, err error) {
	if err := connection.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return false, err
	}
	lines := bufio.NewReader(connection)
	question, err := lines.ReadString('\n')
	if err != nil {
		return false, err
	}
	if strings.TrimSpace(question) != askSocket {
		_, err := fmt.Fprintln(connection, h.version)
		return false, err
	}
	if err := sendSocket(connection, listener); err != nil {
		return false, err
	}
	answer, err := lines.ReadString('\n')
	return err == nil && strings.TrimSpace(answer) == done, err
}

// sendSocket sends the file descriptor of the socket, not of a duplicate. A duplicate shares the blocking mode
// with the socket, so a change of the mode of the duplicate also changes the mode of the socket.
func sendSocket(connection *net.UnixConn, listener net.Listener) error {
	socket, ok := listener.(syscall.Conn)
	if !ok {
		return fmt.Errorf("a %T cannot be handed over", listener)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) {
		_, _, sent = connection.WriteMsgUnix([]byte{0}, syscall.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, sent)
}
