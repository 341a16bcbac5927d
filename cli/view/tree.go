package view

import (
	"fmt"
	"strings"
)

// node is a line of a tree with those below it.
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

func (r *Rollout) tree(t Text) []string {
	root := node{text: t.Paint.in(Strong, "sidecarset/"+r.Name)}
	for i := range r.Revisions {
		root.below = append(root.below, r.Revisions[i].node(t))
	}
	if len(r.Revisions) == 0 {
		root.below = []node{{text: "no pods: none that match were injected"}}
	}
	return root.lines()
}

func (r *Revision) node(t Text) node {
	text := "revision " + t.Paint.in(Strong, r.Name)
	if r.Number > 0 {
		text += fmt.Sprintf(" (%d)", r.Number)
	}
	if r.Current {
		text += t.Paint.in(Good, " current")
	}
	if len(r.Images) > 0 {
		text += "  " + joinImages(r.Images)
	}
	n := node{text: text}
	for i := range r.Owners {
		n.below = append(n.below, r.Owners[i].node(t))
	}
	return n
}

func (o *Owner) node(t Text) node {
	name := "pods of nobody"
	if o.Kind != "" {
		name = strings.ToLower(o.Kind) + "/" + o.Name
	}
	ready := 0
	for i := range o.Pods {
		if o.Pods[i].Ready {
			ready++
		}
	}
	n := node{text: fmt.Sprintf("%s in %s  %s, %d ready", name, o.Namespace, plural(len(o.Pods), "pod"), ready)}
	quiet := map[PodPhase]int{}
	width := 0
	for i := range o.Pods {
		if t.Wide || !o.Pods[i].quiet() {
			width = max(width, len(o.Pods[i].Name))
		}
	}
	for i := range o.Pods {
		pod := &o.Pods[i]
		if !t.Wide && pod.quiet() {
			quiet[pod.Phase]++
			continue
		}
		n.below = append(n.below, node{text: pod.line(t, width)})
	}
	for _, phase := range []PodPhase{PodUpdated, PodOld} {
		if quiet[phase] > 0 {
			n.below = append(n.below, node{text: fmt.Sprintf("%d %s", quiet[phase], t.Paint.in((&Pod{Phase: phase}).tone(), string(phase)))})
		}
	}
	return n
}

func (p *Pod) line(t Text, width int) string {
	line := fmt.Sprintf("%-*s  %s", width, p.Name, t.Paint.in(p.tone(), string(p.Phase)))
	if p.Since != nil {
		line += " for " + age(t.Now, p.Since)
	}
	if p.Why != "" {
		line += ", " + p.Why
	}
	if t.Wide && p.Node != "" {
		line += t.Paint.in(Faint, "  on "+p.Node)
	}
	return line
}
