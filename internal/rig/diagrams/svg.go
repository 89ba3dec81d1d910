package main

import (
	"fmt"
	"html"
	"strings"
)

// theme has the colours of a picture. They stand in the attributes of its elements, because a
// page's policy may forbid a style of a picture's own.
type theme struct{ paper, ink, line, box, note, lost string }

var (
	light = theme{paper: "#ffffff", ink: "#1d2430", line: "#55606f", box: "#e8eefb", note: "#f6edd2", lost: "#b3261e"}
	dark  = theme{paper: "#14181f", ink: "#e4e7ec", line: "#a7b0bd", box: "#25324a", note: "#41381c", lost: "#ff8a80"}
)

// What a picture measures, in pixels.
const (
	width   = 760
	boxHigh = 38
	letter  = 7.3 // of the text, about
	between = 40  // two steps
)

type canvas struct {
	strings.Builder
	theme
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.Builder, format+"\n", args...) }

func (c *canvas) text(x, y float64, anchor, words string) {
	c.add(`<text x="%.0f" y="%.0f" text-anchor="%s" fill="%s">%s</text>`, x, y, anchor, c.ink, html.EscapeString(words))
}

func (c *canvas) box(x, y, w, h float64, fill, words string) {
	c.add(`<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="6" fill="%s" stroke="%s"/>`, x-w/2, y-h/2, w, h, fill, c.line)
	c.text(x, y+5, "middle", words)
}

// arrow is a line with a head, dashed for an answer.
func (c *canvas) arrow(x1, y1, x2, y2 float64, dashed bool) {
	dash := ""
	if dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	c.add(`<line x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f" stroke="%s" stroke-width="1.5"%s marker-end="url(#head)"/>`, x1, y1, x2, y2, c.line, dash)
}

// svg draws the picture in a theme.
func (p *picture) svg(t theme) string {
	c := &canvas{theme: t}
	high := p.boxes(c)
	if len(p.lanes) > 0 {
		high = p.sequence(c)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title desc" font-family="system-ui, sans-serif" font-size="14">
<title id="title">%[3]s</title>
<desc id="desc">%[4]s</desc>
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="%[5]s"/></marker></defs>
<rect width="%[1]d" height="%[2]d" fill="%[6]s"/>
%[7]s</svg>
`, width, high, html.EscapeString(p.title), html.EscapeString(p.desc), t.line, t.paper, c.String())
}

// sequence draws lanes, and the steps from top to bottom. It returns how high it is.
func (p *picture) sequence(c *canvas) int {
	at := func(lane int) float64 { return width * (float64(lane) + 0.5) / float64(len(p.lanes)) }
	top := 20 + boxHigh/2.0
	bottom := top + boxHigh/2.0 + float64(len(p.steps)+1)*between
	for i, lane := range p.lanes {
		c.add(`<line x1="%[1]f" y1="%.0[2]f" x2="%[1]f" y2="%.0[3]f" stroke="%[4]s" stroke-dasharray="2 4"/>`, at(i), top, bottom, c.line)
		c.box(at(i), top, 150, boxHigh, c.theme.box, lane)
	}
	y := top + boxHigh/2.0
	for _, s := range p.steps {
		y += between
		from, to := at(s.from), at(s.to)
		if s.from == s.to {
			c.box(from, y-6, letter*float64(len(s.words))+18, 26, c.note, s.words)
			continue
		}
		if s.kind == "x" { // it doesn't arrive
			to = from + (to-from)*0.6
		}
		middle := (from + to) / 2
		wide := letter * float64(len(s.words))
		c.add(`<rect x="%.0f" y="%.0f" width="%.0f" height="18" fill="%s"/>`, middle-wide/2, y-22, wide, c.paper)
		c.text(middle, y-8, "middle", s.words)
		if s.kind == "x" {
			c.arrow(from, y, to, y, true)
			c.add(`<path d="M%.0[1]f %.0[3]fl14 14M%.0[1]f %.0[2]fl14 -14" stroke="%[4]s" stroke-width="3"/>`, to-20, y+7, y-7, c.lost)
			continue
		}
		c.arrow(from, y, to, y, s.kind == "-->")
	}
	return int(bottom) + 20
}

// boxes draws columns of boxes with arrows between them. It returns how high it is.
func (p *picture) boxes(c *canvas) int {
	const wide, row, middle = 178, 62, 178
	at := func(column int) float64 { return width * (float64(column) + 0.5) / float64(max(1, len(p.columns))) }
	place := func(column, i int) float64 {
		return middle + row*(float64(i)-float64(len(p.columns[column])-1)/2)
	}
	for i, column := range p.columns {
		for j, words := range column {
			y := place(i, j)
			if i+1 < len(p.columns) { // each to all of the next
				for k := range p.columns[i+1] {
					c.arrow(at(i)+wide/2, y, at(i+1)-wide/2-3, place(i+1, k)+(y-middle)/12, false)
				}
			}
			c.box(at(i), y, wide, boxHigh+6, c.theme.box, words)
		}
	}
	for i, words := range p.arrows {
		c.text((at(i)+at(i+1))/2, 26, "middle", words+" →")
	}
	if p.below == "" {
		return 2 * middle
	}
	centre := at(len(p.columns) / 2)
	c.arrow(centre, middle+boxHigh/2+6, centre, middle+104, false)
	c.box(centre, middle+127, letter*float64(len(p.below))+24, boxHigh, c.note, p.below)
	c.text((at(0)+at(1))/2, 46, "middle", "← "+p.back)
	return 2*middle + 10
}
