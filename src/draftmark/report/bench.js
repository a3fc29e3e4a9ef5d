// Draws a load run's plots into their boxes. All text and all numbers are final in the data; this file only places them.
(() => {
  "use strict";
  const { data, base } = Plots;
  const ink = "var(--text)", muted = "var(--muted)";

  const bottom = (label) => ({ label, labelAnchor: "center", labelArrow: "none", tickSize: 0 });
  const tip = Plots.tip(Plot.pointerX);

  function histogram(panel, width, label) {
    const bins = panel.bins;
    const [first, last] = [bins[0].x1, bins.at(-1).x2];
    const ends = d3.extent([first, last, ...panel.outline.map((d) => d.x)]);
    const left = 44, right = 14, top = 22 + 14 * (panel.marks.length - 1);
    const px = d3.scaleLinear(ends, [left, width - right]);
    // One row a mark, so that neighbours do not overlap; on the side where there is room.
    const marks = panel.marks.map((d, i) => ({ ...d, row: i, end: px(d.x) > width - right - 34 }));
    return Plot.plot(base(width, label, {
      height: 190 + top, marginTop: top, marginBottom: 40, marginLeft: left, marginRight: right,
      x: { domain: ends, ...bottom("ms"), ticks: Math.max(2, Math.floor(width / 90)) },
      y: { domain: [0, d3.max([...bins, ...panel.outline], (d) => d.share)], ticks: 4, label: null, tickSize: 0, tickFormat: (d) => `${d} %` },
      marks: [
        Plot.gridY({ ticks: 4, stroke: "var(--line)", strokeOpacity: 1 }),
        Plot.rectY(bins, { x1: "x1", x2: "x2", y: "share", fill: "var(--measure)", insetRight: 0.5 }),
        Plot.line(panel.outline, { x: "x", y: "share", stroke: ink, strokeWidth: 1.25 }),
        Plot.ruleY([0], { stroke: "var(--strong-line)" }),
        Plot.ruleX(marks, { x: "x", stroke: muted, strokeDasharray: "3 3" }),
        ...marks.map((d) => Plot.text([d], {
          x: "x", frameAnchor: "top", dy: -top + 8 + 14 * d.row, dx: d.end ? -4 : 4, text: "text",
          textAnchor: d.end ? "end" : "start", fill: ink,
        })),
        tip(bins, { x: (d) => (d.x1 + d.x2) / 2, y: "share" }),
      ],
    }));
  }

  function sizes(panel, width, label) {
    const bars = panel.bars;
    const every = Math.ceil(bars.length / Math.max(1, Math.floor((width - 60) / 26)));
    return Plot.plot(base(width, label, {
      height: 212, marginTop: 22, marginBottom: 40, marginLeft: 44, marginRight: 14,
      x: { type: "band", domain: bars.map((d) => d.tokens), padding: 0.2, ...bottom("tokens"), ticks: bars.filter((_, i) => i % every === 0).map((d) => d.tokens) },
      y: { domain: [0, d3.max(bars, (d) => d.share)], ticks: 4, label: null, tickSize: 0, tickFormat: (d) => `${d} %` },
      marks: [
        Plot.gridY({ ticks: 4, stroke: "var(--line)", strokeOpacity: 1 }),
        Plot.barY(bars, { x: "tokens", y: "share", fill: "var(--measure)" }),
        Plot.ruleY([0], { stroke: "var(--strong-line)" }),
        tip(bars, { x: "tokens", y: "share" }),
      ],
    }));
  }

  const overTime = (panel, width, label, options) => Plot.plot(base(width, label, {
    height: 220, marginTop: 12, marginBottom: 40, marginLeft: 56, marginRight: 14,
    x: { domain: d3.extent(panel.points, (d) => d.at), ...bottom("seconds"), ticks: Math.max(3, Math.floor(width / 110)) },
    ...options,
  }));

  function tokens(panel, width, label) {
    const top = d3.max(panel.points, (d) => d.tok_s) || 1;
    const [first, last] = d3.extent(panel.points, (d) => d.at);
    const inside = (at) => Math.min(last, Math.max(first, at));
    const shaded = panel.window && { from: inside(panel.window.from), to: inside(panel.window.to) };
    const errors = panel.errors.map((d) => ({ at: inside(d.at), text: d.kind }));
    return overTime(panel, width, label, {
      y: { domain: [0, top], ticks: 4, label: null, tickSize: 0 },
      marks: [
        shaded && Plot.rect([shaded], { x1: "from", x2: "to", y1: 0, y2: top, fill: "var(--base-band)" }),
        Plot.gridY({ ticks: 4, stroke: "var(--line)", strokeOpacity: 1 }),
        Plot.areaY(panel.points, { x: "at", y: "tok_s", fill: "var(--measure)", fillOpacity: 0.35, curve: "step" }),
        Plot.lineY(panel.points, { x: "at", y: "tok_s", stroke: "var(--measure)", strokeWidth: 1.5, curve: "step" }),
        Plot.ruleY([0], { stroke: "var(--strong-line)" }),
        Plot.dot(errors, { x: "at", y: 0, dy: -6, symbol: "times", r: 4, stroke: "var(--worse)", strokeWidth: 2, title: "text" }),
        tip(panel.points, { x: "at", y: "tok_s" }),
      ],
    });
  }

  function requests(panel, width, label) {
    const top = d3.max(panel.points, (d) => Math.max(d.running, panel.waits ? d.waiting : 0)) || 1;
    return overTime(panel, width, label, {
      y: { domain: [0, top], ticks: Math.min(4, top), label: null, tickSize: 0 },
      marks: [
        Plot.gridY({ ticks: Math.min(4, top), stroke: "var(--line)", strokeOpacity: 1 }),
        Plot.lineY(panel.points, { x: "at", y: "running", stroke: ink, strokeWidth: 1.5, curve: "step" }),
        panel.waits ? Plot.lineY(panel.points, { x: "at", y: "waiting", stroke: muted, strokeWidth: 1.5, strokeDasharray: "4 3", curve: "step" }) : null,
        Plot.ruleY([0], { stroke: "var(--strong-line)" }),
        tip(panel.points, { x: "at", y: "running" }),
      ],
    });
  }

  const PLOTS = { histogram, sizes, tokens, requests };

  Plots.show((kind, index, width, label) => PLOTS[kind](data[kind][index], width, label));
})();
