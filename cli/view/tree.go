package view

import (
	"fmt"

	"github.com/outrigger/outrigger/internal/rollout"
)

// node is a line of a tree with its subtrees.
type node struct {
	text  string
	below []node
}

func (n node) lines() []string {
	lines := []string{n.text}
	for i, child := range n.below {
		first, rest := "├─ ", "│  "
		if i == len(n.below)-1 {
			first, rest = "└─ ", "   "
		}
		for j, line := range child.lines() {
			if j == 0 {
				lines = append(lines, first+line)
			} else {
				lines = append(lines, rest+line)
			}
		}
	}
	return lines
}

func (r *Rollout) tree(s Style) []string {
	root := node{text: s.Paint.in(Strong, "sidecarset/"+r.Name)}
	for i := range r.Revisions {
		root.below = append(root.below, r.Revisions[i].node(s))
	}
	if len(r.Revisions) == 0 {
		root.below = []node{{text: "no pod has the sidecars"}}
	}
	return root.lines()
}

func (r *Revision) node(s Style) node {
	text := "revision " + s.Paint.in(Strong, r.Name)
	if r.Number > 0 {
		text += fmt.Sprintf(" (%d)", r.Number)
	}
	if r.Current {
		text += s.Paint.in(Good, " current")
	}
	if len(r.Images) > 0 {
		text += "  " + joinImages(r.Images)
	}
	n := node{text: text}
	for i := range r.Owners {
		n.below = append(n.below, r.Owners[i].node(s))
	}
	return n
}

func (o *Owner) node(s Style) node {
	var listed []*Pod
	width, counted := 0, map[PodPhase]int{}
	for i := range o.Pods {
		pod := &o.Pods[i]
		if !s.Wide && pod.counted() {
			counted[pod.Phase]++
			continue
		}
		listed, width = append(listed, pod), max(width, len(pod.Name))
	}
	n := node{text: fmt.Sprintf("%s in %s  %s, %d ready", o.Title(), o.Namespace, rollout.Count(len(o.Pods), "pod"), o.Ready())}
	for _, pod := range listed {
		n.below = append(n.below, node{text: pod.line(s, width)})
	}
	for _, phase := range []PodPhase{PodUpdated, PodOld} {
		if counted[phase] > 0 {
			n.below = append(n.below, node{text: fmt.Sprintf("%d %s", counted[phase], s.Paint.in((&Pod{Phase: phase}).tone(), string(phase)))})
		}
	}
	return n
}

func (p *Pod) line(s Style, width int) string {
	line := fmt.Sprintf("%-*s  %s", width, p.Name, s.Paint.in(p.tone(), string(p.Phase)))
	if p.Since != nil {
		line += " for " + age(s.Now, *p.Since)
	}
	if p.Reason != "" {
		line += ", " + p.Reason
	}
	if s.Wide && p.Node != "" {
		line += s.Paint.in(Faint, "  on "+p.Node)
	}
	return line
}
