package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// installer gets programs from wherever it can.
type installer struct {
	bin      bin
	mode     mode
	os, arch string
	// folders may hold programs that are there already.
	folders []string
	fetcher *fetcher
	out     io.Writer
	// verbose gets what only people who look for trouble want to read.
	verbose io.Writer
}

// plan is how one program is got: copied from path, else downloaded from the first
// of the sources that holds what it promises, else compiled.
type plan struct {
	program
	path    string
	sources []source
}

// install says what it will do and how much that is, and does it.
func (i *installer) install(ctx context.Context, wanted []program) error {
	var plans []plan
	for _, p := range wanted {
		one, err := i.plan(ctx, p)
		if err != nil {
			return err
		}
		plans = append(plans, one)
	}
	i.announce(plans)
	for _, one := range plans {
		began := time.Now()
		result, err := i.get(ctx, one)
		if err != nil {
			return err
		}
		if err := i.bin.put(one.program, result.file, result.origin); err != nil {
			return err
		}
		i.say("  %-24s %s in %.0f s", one.name, result.how, time.Since(began).Seconds())
	}
	return nil
}

// got is a program in the work folder.
type got struct {
	file string
	// how it was got, for people; origin is where from, and empty for what was compiled.
	how, origin string
}

func (i *installer) plan(ctx context.Context, p program) (plan, error) {
	one := plan{program: p}
	if i.mode == build {
		return one, nil
	}
	if one.path = i.present(ctx, p); one.path != "" {
		return one, nil
	}
	reasons := []error{fmt.Errorf("TOOLS=%s: %s is not there in a version that fits, and cannot be downloaded", i.mode, p.name)}
	for _, s := range p.sources {
		s = s.on(i.os, i.arch)
		if err := i.fetcher.ask(ctx, s); err != nil {
			if !slices.Contains(reasons, err) {
				reasons = append(reasons, err)
			}
			continue
		}
		one.sources = append(one.sources, s)
	}
	if ctx.Err() != nil {
		return one, context.Cause(ctx)
	}
	if i.mode == download && len(one.sources) == 0 {
		return one, errors.Join(reasons...)
	}
	return one, nil
}

func (i *installer) announce(plans []plan) {
	var copied, downloaded, compiled []string
	files := map[string]source{}
	minutes := 0.0
	for _, one := range plans {
		switch {
		case one.path != "":
			copied = append(copied, one.name)
		case len(one.sources) > 0:
			downloaded = append(downloaded, one.name)
			files[i.fetcher.url(one.sources[0])] = one.sources[0]
		default:
			compiled = append(compiled, one.name)
			minutes += one.minutes
		}
	}
	for _, complaint := range i.fetcher.complaints() {
		i.say("tools: %s", complaint)
	}
	if len(copied) > 0 {
		i.say("tools: on this machine already: %s", strings.Join(copied, ", "))
	}
	if len(downloaded) > 0 {
		i.say("tools: to download, %d MB: %s", i.fetcher.megabytes(files), strings.Join(downloaded, ", "))
	}
	if len(compiled) > 0 {
		i.say("tools: to compile, up to %.1f min on two cores, once: %s", minutes, strings.Join(compiled, ", "))
	}
}

// get brings a program into the work folder.
func (i *installer) get(ctx context.Context, one plan) (got, error) {
	file := filepath.Join(i.bin.work(), one.name)
	if one.path != "" {
		origin := "copied from " + one.path
		return got{file, origin, origin}, copyFile(one.path, file)
	}
	var failed []error
	for _, s := range one.sources {
		err := i.download(ctx, one.program, s, file)
		if err == nil {
			return got{file, "downloaded", "downloaded from " + i.fetcher.url(s)}, nil
		}
		if ctx.Err() != nil {
			return got{}, context.Cause(ctx)
		}
		failed = append(failed, err)
		i.say("tools: %s: %v", one.name, err)
	}
	if i.mode == download {
		return got{}, fmt.Errorf("TOOLS=%s: %s could not be downloaded: %w", i.mode, one.name, errors.Join(failed...))
	}
	file, err := i.compile(ctx, one.program)
	return got{file, "compiled", ""}, err
}

// download fails if what the source holds is not the program in a version that fits.
func (i *installer) download(ctx context.Context, p program, s source, file string) error {
	if err := i.fetcher.program(ctx, s, file); err != nil {
		return err
	}
	if err := os.Chmod(file, 0o755); err != nil {
		return fmt.Errorf("make %s a program: %w", p.name, err)
	}
	if said := printedVersion(ctx, p, file); !strings.Contains(said, p.fits) {
		return fmt.Errorf("%s holds another version: it says %q, not %q", i.fetcher.url(s), said, p.fits)
	}
	return nil
}

// copyFile copies rather than links: others may upgrade what is there.
func copyFile(from, to string) error {
	file, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	defer func() { _ = file.Close() }()
	if err := writeFile(to, file); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// writeFile writes a new file and reports also what closing it says.
func writeFile(name string, from io.Reader) error {
	to, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// say prints a line. A reader who has gone is no reason to fail.
func (i *installer) say(format string, args ...any) { _, _ = fmt.Fprintf(i.out, format+"\n", args...) }

func (i *installer) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(i.verbose, "tools: "+format+"\n", args...)
}
