package ui

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/cli"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/fleet"
)

//go:embed page
var files embed.FS

// maxListedPods limits the pods on a page.
const maxListedPods = 100

// site answers requests for pages.
type site struct {
	models *cli.Models
	// fleet is nil without the flag --fleet.
	fleet *fleetReader
	clock clock.PassiveClock
	log   logr.Logger
}

// page is the data of every template.
type page struct {
	Title string
	Now   time.Time
	// Fleet is true if the site has a page about the fleet.
	Fleet bool
	Body  any
}

// setPage is the body of the page of a SidecarSet.
type setPage struct {
	*view.Rollout
	Facts  []view.Fact
	RunURL string
	Pods   []*view.Pod
	// More counts the pods that are not listed.
	More int
}

// handler returns the handler of all pages and files. All pages are read-only. guard protects each page.
func (s *site) handler(guard guard) http.Handler {
	sets, pods := need{"apps.kruise.io", "sidecarsets"}, need{"", "pods"}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", guard(s.page("list.html", s.list), sets))
	mux.Handle("GET /sidecarsets/{name}", guard(s.page("set.html", s.set), sets, pods))
	if s.fleet != nil {
		mux.Handle("GET /fleet", guard(s.page("fleet.html", s.fleetPage), sets))
	}
	for _, name := range []string{"page.css", "page.js"} {
		mux.Handle("GET /"+name, guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.ServeFileFS(w, r, files, "page/"+name)
		})))
	}
	return secured(mux)
}

// secured adds headers to each response. With these headers, browsers do not load content of other sites into
// a page, do not show a page inside pages of other sites, and do not cache a page.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy":      "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
			"X-Frame-Options":              "DENY",
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-store",
		} {
			w.Header().Set(name, value)
		}
		next.ServeHTTP(w, r)
	})
}

// read returns the title and the body of a page.
type read func(r *http.Request, now time.Time) (string, any, error)

// page returns the handler of a page. If the content of the page cannot be read, the handler shows an
// error page with the reason.
func (s *site) page(name string, read read) http.Handler {
	tmpl, failed := parse(name), parse("error.html")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
		defer cancel()
		p, code, shown := page{Now: s.clock.Now().UTC(), Fleet: s.fleet != nil}, http.StatusOK, tmpl
		var err error
		p.Title, p.Body, err = read(r.WithContext(ctx), p.Now)
		switch {
		case cli.IsNoSuchSet(err):
			code = http.StatusNotFound
		case err != nil:
			code = http.StatusServiceUnavailable
		}
		if err != nil {
			p.Title, p.Body, shown = "Not available", err.Error(), failed
		}
		var out bytes.Buffer
		if err := shown.Execute(&out, p); err != nil {
			s.log.Error(err, "a page cannot be written", "page", name)
			http.Error(w, "the page cannot be written", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		_, _ = w.Write(out.Bytes()) // The client may have closed the connection.
	})
}

// parse returns the template of a page within the layout.
func parse(name string) *template.Template {
	return template.Must(template.New("layout.html").Funcs(template.FuncMap{
		"tone":  toneClass,
		"clock": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	}).ParseFS(files, "page/layout.html", "page/"+name))
}

// toneClass returns the CSS class of a tone. The colour adds no information to the text of the element, so
// the page is also readable without colours.
func toneClass(tone view.Tone) string {
	switch tone {
	case view.Good:
		return "good"
	case view.Busy:
		return "busy"
	case view.Bad:
		return "bad"
	case view.Faint:
		return "faint"
	}
	return "plain"
}

func (s *site) list(r *http.Request, now time.Time) (string, any, error) {
	sets, err := s.models.List(r.Context(), now)
	return "SidecarSets", sets, err
}

func (s *site) set(r *http.Request, now time.Time) (string, any, error) {
	name := r.PathValue("name")
	rollout, runURL, err := s.models.Status(r.Context(), name, now)
	if err != nil {
		return "", nil, err
	}
	return "SidecarSet " + name, newSetPage(rollout, runURL, now), nil
}

// newSetPage returns the body of the page of a SidecarSet. The list of facts omits the facts that the page
// shows in other places. The list of pods has at most maxListedPods entries.
func newSetPage(rollout *view.Rollout, runURL string, now time.Time) setPage {
	p := setPage{Rollout: rollout, RunURL: runURL, Pods: rollout.ListedPods()}
	p.Facts = slices.DeleteFunc(rollout.Facts(view.Style{Now: now}), func(f view.Fact) bool {
		return slices.Contains([]string{"Name", "Status", "Progress", "Step"}, f.Name)
	})
	p.More = max(len(p.Pods)-maxListedPods, 0)
	p.Pods = p.Pods[:len(p.Pods)-p.More]
	return p
}

// fleetRollout is one rollout across many clusters.
type fleetRollout struct {
	*protocol.FleetState
	Stages   []fleetStage
	Clusters []fleetCluster
}

// fleetStage is a stage of a FleetPolicy.
type fleetStage struct {
	fleet.Stage
	Tone view.Tone
	// Words describes the state of the stage.
	Words string
}

// fleetCluster is a cluster with the name of its stage.
type fleetCluster struct {
	*protocol.FleetCluster
	StageName string
	Tone      view.Tone
}

func (s *site) fleetPage(r *http.Request, now time.Time) (string, any, error) {
	states, err := s.fleet.rollouts(r.Context())
	if err != nil {
		return "", nil, fmt.Errorf("read the fleet: %w", err)
	}
	rollouts := make([]fleetRollout, len(states))
	for i := range states {
		rollouts[i] = newFleetRollout(&states[i], now)
	}
	return "Fleet", rollouts, nil
}

func newFleetRollout(s *protocol.FleetState, now time.Time) fleetRollout {
	shown := fleetRollout{FleetState: s}
	for _, stage := range fleet.Stages(s, now) {
		shown.Stages = append(shown.Stages, newFleetStage(stage, now))
	}
	for _, cluster := range fleet.WorstFirst(s) {
		shown.Clusters = append(shown.Clusters, fleetCluster{cluster, fleet.StageName(s, cluster), clusterTone(cluster.State)})
	}
	return shown
}

// newFleetStage returns a stage with the words and the tone of the state.
func newFleetStage(stage fleet.Stage, now time.Time) fleetStage {
	shown := fleetStage{Stage: stage, Words: string(stage.State)}
	switch stage.State {
	case fleet.StageEnded:
		shown.Tone = view.Good
	case fleet.StageNext:
		shown.Tone = view.Faint
	case fleet.StageStopped:
		shown.Tone = view.Bad
	case fleet.StageBaking:
		shown.Words += ", " + stage.BakesUntil.Sub(now).Round(time.Second).String() + " left"
		shown.Tone = view.Busy
	default:
		shown.Tone = view.Busy
	}
	return shown
}

func clusterTone(state protocol.FleetClusterState) view.Tone {
	switch state {
	case protocol.ClusterCompleted:
		return view.Good
	case protocol.ClusterPending:
		return view.Faint
	case protocol.ClusterRunning:
		return view.Busy
	}
	return view.Bad
}

// Title returns the name of the cluster, or a dash if the cluster has reported content, but no name.
func (c fleetCluster) Title() string { return cmp.Or(c.Name, "-") }
