package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/outrigger/outrigger/dev/cluster/process"
)

// postgresUser is the owner of the databases. PostgreSQL trusts every connection.
const postgresUser = "temporal"

// startPostgres starts PostgreSQL. If the data directory does not exist, startPostgres also creates the data
// directory and the databases.
func (c *Cluster) startPostgres(ctx context.Context) error {
	initdb, err := postgresProgram("initdb")
	if err != nil {
		return err
	}
	program, err := postgresProgram("postgres")
	if err != nil {
		return err
	}
	isReady, err := postgresProgram("pg_isready") // PostgreSQL listens long before PostgreSQL accepts connections.
	if err != nil {
		return err
	}
	data, system := filepath.Join(c.options.Dir, postgresDir), notRoot()
	_, existing := os.Stat(filepath.Join(data, "PG_VERSION"))
	if existing != nil {
		create := exec.CommandContext(ctx, initdb, "--pgdata="+data, "--username="+postgresUser,
			"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
		create.SysProcAttr = &system
		if _, err := output(create); err != nil {
			return fmt.Errorf("create the directory of PostgreSQL: %w", err)
		}
	}
	err = c.Start(ctx, process.Spec{
		Name: Postgres, Path: program,
		Args: []string{
			"-D", data, "-p", fmt.Sprint(c.ports.of(Postgres)),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=200",
		},
		System:     system,
		StopSignal: syscall.SIGINT, // After SIGTERM, PostgreSQL waits until all clients have disconnected.
		Ready: func(ctx context.Context) error {
			_, err := output(exec.CommandContext(ctx, isReady, "--host=127.0.0.1", fmt.Sprintf("--port=%d", c.ports.of(Postgres))))
			return err
		},
	})
	if err != nil || existing == nil {
		return err
	}
	return c.createDatabases(ctx, false)
}

// postgresProgram returns the path of a program of the PostgreSQL server. On Debian, these
// programs are not in the PATH.
func postgresProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("program %s is missing (apt-get install postgresql, or put it on the PATH): %w", name, os.ErrNotExist)
	}
	return slices.Max(found), nil
}

// notRoot returns attributes with which a process of root runs as the user nobody of a user namespace,
// because PostgreSQL does not run as root. Outside of the namespace, and for files, the user of the process
// is still root. If the current user is not root, notRoot returns no attributes.
func notRoot() syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return syscall.SysProcAttr{}
	}
	const nobody = 65534
	return syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getgid(), Size: 1}},
	}
}
