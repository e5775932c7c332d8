// Package board knows what people on call look at: dashboards of panels, each with a title that says what it means, a unit, the bound from which it hurts, and the
// page that helps. It renders Grafana's model; it reads and writes no file.
package board

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Board is one dashboard.
type Board struct {
	// UID is its name in addresses and of its file.
	UID, Title, About string
	// Service adds a choice of services, $job.
	Service bool
	Rows    []Row
}

// Row is a line of panels with a heading.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel shows queries: as numbers, or over time.
type Panel struct {
	Title, About string
	// Unit is Grafana's: s, reqps, percentunit, short.
	Unit    string
	Queries []Query
	// Number shows the value of now large, coloured by the bounds. Over time it would still show the last one there was of what is gone.
	Number bool
	// Warn and Bad are the values from which it is yellow and red; both zero: neither.
	Warn, Bad float64
	// Below turns the bounds around: red is what lies under Bad.
	Below bool
	// Signed: values lie on both sides of zero.
	Signed bool
	// Stacked adds the series up.
	Stacked bool
	// Alerts are those whose pages help here.
	Alerts []string
	// Traces marks values that lead to a trace.
	Traces bool
}

// Query is one expression with the legend of its series.
type Query struct{ Expr, Legend string }

// All are the dashboards, in the order in which somebody who was woken opens them.
func All() []Board {
	return []Board{callPath(), delivery(), dialer(), compliance(), wallet(), bus(), service()}
}

const (
	span       = 8 // a third of the width
	numberSpan = 4
	height     = 8
	numbers    = 4
	// day in seconds.
	day = 24 * 3600
)

// Render is the dashboard as Grafana keeps it.
func Render(b Board) (dashboard.Dashboard, error) {
	built := dashboard.NewDashboardBuilder(b.Title).Uid(b.UID).Description(b.About).Tags([]string{"ringfence"}).Readonly().
		Refresh("30s").Time("now-1h", "now").Timezone("browser").Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")).
		WithVariable(dashboard.NewConstantVariableBuilder("runbooks").Value(dashboard.StringOrMap{String: cog.ToPtr("deploy/runbooks")})).
		Annotation(dashboard.NewAnnotationQueryBuilder().Name("Pages").Enable(true).IconColor("red").Datasource(source()).
			Expr(`ALERTS{alertstate="firing",severity="page"}`)).
		Link(dashboard.NewDashboardLinkBuilder("Ringfence").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"ringfence"}).AsDropdown(true).IncludeVars(true).KeepTime(true))
	if b.Service {
		built.WithVariable(dashboard.NewQueryVariableBuilder("job").Label("Service").Datasource(source()).
			Query(dashboard.StringOrMap{String: cog.ToPtr("label_values(ringfence_build_info, job)")}).
			Current(dashboard.VariableOption{Text: text("gateway"), Value: text("gateway")}))
	}
	for _, row := range b.Rows {
		built.WithRow(dashboard.NewRowBuilder(row.Title))
		for _, p := range row.Panels {
			if p.Number {
				built.WithPanel(p.number())
			} else {
				built.WithPanel(p.overTime())
			}
		}
	}
	model, err := built.Build()
	if err != nil {
		return dashboard.Dashboard{}, fmt.Errorf("build dashboard %s: %w", b.UID, err)
	}
	return model, nil
}

func text(s string) dashboard.StringOrArrayOfString {
	return dashboard.StringOrArrayOfString{String: &s}
}

func source() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

func (p Panel) number() *stat.PanelBuilder {
	panel := stat.NewPanelBuilder().Title(p.Title).Description(p.About).Unit(p.Unit).Datasource(source()).Height(numbers).Span(numberSpan).
		Thresholds(p.bounds()).GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeValue).Links(p.pages()).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).NoValue("not told")
	if p.Unit == "percentunit" {
		panel.Decimals(2)
	}
	for i, q := range p.Queries {
		panel.WithTarget(p.target(i, q))
	}
	return panel
}

func (p Panel) overTime() *timeseries.PanelBuilder {
	panel := timeseries.NewPanelBuilder().Title(p.Title).Description(p.About).Unit(p.Unit).Datasource(source()).Height(height).Span(span).
		Thresholds(p.bounds()).Links(p.pages()).FillOpacity(10).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if !p.Signed {
		panel.Min(0)
	}
	if p.Warn != 0 || p.Bad != 0 {
		panel.ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
	}
	if p.Stacked {
		panel.Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal)).FillOpacity(40)
	}
	for i, q := range p.Queries {
		panel.WithTarget(p.target(i, q))
	}
	return panel
}

func (p Panel) target(i int, q Query) *prometheus.DataqueryBuilder {
	query := prometheus.NewDataqueryBuilder().RefId(string(rune('A' + i))).Expr(q.Expr).LegendFormat(q.Legend).Exemplar(p.Traces).Datasource(source())
	if p.Number {
		return query.Instant()
	}
	return query.Range()
}

func (p Panel) bounds() *dashboard.ThresholdsConfigBuilder {
	steps := []dashboard.Threshold{{Color: "green"}}
	switch {
	case p.Below:
		steps = []dashboard.Threshold{{Color: "red"}, {Color: "yellow", Value: &p.Bad}, {Color: "green", Value: &p.Warn}}
	case p.Warn != 0 || p.Bad != 0:
		steps = append(steps, dashboard.Threshold{Color: "yellow", Value: &p.Warn}, dashboard.Threshold{Color: "red", Value: &p.Bad})
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)
}

func (p Panel) pages() []cog.Builder[dashboard.DashboardLink] {
	var links []cog.Builder[dashboard.DashboardLink]
	for _, alert := range p.Alerts {
		links = append(links, dashboard.NewDashboardLinkBuilder("Runbook: "+alert).Type(dashboard.DashboardLinkTypeLink).Url("${runbooks}/"+alert+".md").TargetBlank(true))
	}
	return links
}
