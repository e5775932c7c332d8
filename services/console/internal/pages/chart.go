package pages

import (
	"fmt"
	"html/template"
	"strings"
)

// The size of the chart in the units of its view box.
const (
	chartWidth, chartHeight = 720, 200
	chartLeft, chartBottom  = 40, 26
)

// HourChart draws the calls of 24 hours as stacked bars. The same numbers are in a table for screen
// readers.
func (p *pageData) HourChart(hours []hourSummary) template.HTML {
	top := 4
	for _, h := range hours {
		top = max(top, h.Answered+h.Missed+h.Failed)
	}
	top = niceTop(top)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="%s">`, chartWidth, chartHeight,
		template.HTMLEscapeString(p.visit.server.templates.text(p.Language, "overview.chart")))
	height := float64(chartHeight - chartBottom - 8)
	for i := range 5 {
		y := 8 + height*float64(i)/4
		fmt.Fprintf(
			&b,
			`<line class="rule" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			chartLeft,
			chartWidth,
			y,
			y,
			chartLeft-8,
			y+3.5,
			formatNumber(p.Language, top*(4-i)/4),
		)
	}
	step := float64(chartWidth-chartLeft) / float64(len(hours))
	for i, h := range hours {
		x, y := chartLeft+step*float64(i)+step*0.16, 8+height
		title := fmt.Sprintf("%s: %d / %d / %d", h.Start.In(p.Zone).Format("15:04"), h.Answered, h.Missed, h.Failed)
		fmt.Fprintf(&b, `<g><title>%s</title>`, title)
		for _, part := range []struct {
			class string
			count int
		}{{"answered", h.Answered}, {"missed", h.Missed}, {"failed", h.Failed}} {
			if part.count == 0 {
				continue
			}
			size := height * float64(part.count) / float64(top)
			y -= size
			fmt.Fprintf(
				&b,
				`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2"/>`,
				part.class,
				x,
				y,
				step*0.68,
				max(0, size-1),
			)
		}
		b.WriteString(`</g>`)
		if i%4 == 3 {
			class := ""
			if i%8 != 7 {
				class = ` class="minor"` // hidden on small screens
			}
			fmt.Fprintf(&b, `<text%s x="%.1f" y="%d" text-anchor="middle">%s</text>`, class, x+step*0.34, chartHeight-6,
				h.Start.In(p.Zone).Format("15:04"))
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // each part is a number, a time or escaped text
}

// niceTop returns the upper end of the axis. It is at least n, and a quarter of it is a round
// number.
func niceTop(n int) int {
	for size := 1; ; size *= 10 {
		for _, top := range []int{4, 8, 12, 20, 40} {
			if n <= top*size {
				return top * size
			}
		}
	}
}
