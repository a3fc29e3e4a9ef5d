// Draws the plots into their boxes. All text and all numbers are final in the data; this file only places them.
(() => {
  "use strict";
  const { data, FONT, base } = Plots;
  const tick = new Map(data.arms.map((d) => [d.arm, d.tick]));
  const name = new Map(data.arms.map((d) => [d.arm, d.name]));
  const order = data.arms.map((d) => d.arm);
  const ink = "var(--text)", muted = "var(--muted)", accent = "var(--accent)";

  /** Moves labels apart that would overlap: [{px, …}] in pixels from the top, at least a line between them. */
  const apart = (labels, least = FONT + 2) => {
    const sorted = [...labels].sort((a, b) => a.px - b.px);
    for (let i = 1; i < sorted.length; i += 1) {
      const short = sorted[i - 1].px + sorted[i - 1].dy + least - (sorted[i].px + sorted[i].dy);
      if (short > 0) {
        sorted[i - 1].dy -= short / 2;
        sorted[i].dy += short / 2;
      }
    }
    return labels;
  };

  const tip = Plots.tip(Plot.pointer);

  function speed(panel, width, label) {
    const points = panel.points.filter((d) => d.tok_s != null);
    const absent = panel.points.filter((d) => d.tok_s == null);
    const trials = points.flatMap((d) => d.values.map((value) => ({ arm: d.arm, value })));
    const seen = points.flatMap((d) => [d.tok_s, d.low, d.high, ...d.values]).filter((v) => v != null);
    if (panel.baseline) seen.push(panel.baseline.low, panel.baseline.high);
    let [bottom, top] = d3.extent(seen);
    const middle = panel.baseline ? panel.baseline.tok_s : (bottom + top) / 2;
    // Noise must not fill the panel: the scale always spans at least 30 % of the baseline.
    const lack = 0.3 * middle - (top - bottom);
    if (lack > 0) { bottom -= lack / 2; top += lack / 2; }
    const height = 250, marginTop = 26, marginBottom = 40, marginRight = 62, inset = 8;
    const px = d3.scaleLinear([bottom, top], [height - marginBottom - inset, marginTop + inset]);
    const side = [];
    if (panel.baseline) side.push({ y: panel.baseline.tok_s, px: px(panel.baseline.tok_s), dy: 0, text: "baseline", fill: muted });
    if (panel.tie) {
      const y = (panel.tie.low + panel.tie.high) / 2;
      side.push({ y, px: px(y), dy: 0, text: "tie band", fill: accent });
    }
    const chosen = points.filter((d) => d.role === "choice");
    const ties = points.filter((d) => d.role === "tie");
    const others = points.filter((d) => d.role !== "tie");
    return Plot.plot(base(width, label, {
      height, marginTop, marginBottom, marginRight, marginLeft: 44,
      x: { type: "point", domain: order, tickFormat: (d) => tick.get(d), label: "depth", labelAnchor: "center", labelArrow: "none", padding: 0.6, tickSize: 0 },
      y: { domain: [bottom, top], insetTop: inset, insetBottom: inset, ticks: 5, label: null, tickSize: 0 },
      marks: [
        Plot.gridY({ ticks: 5, stroke: "var(--line)", strokeOpacity: 1 }),
        panel.tie && Plot.rect([panel.tie], { y1: "low", y2: "high", fill: "var(--tie-band)", stroke: accent, strokeOpacity: 0.35, inset: -1 }),
        panel.baseline && Plot.rect([panel.baseline], { y1: "low", y2: "high", fill: "var(--base-band)" }),
        panel.baseline && Plot.ruleY([panel.baseline.tok_s], { stroke: muted, strokeWidth: 1.25, strokeDasharray: "4 3" }),
        Plot.line(points, { x: "arm", y: "tok_s", stroke: "var(--strong-line)", strokeWidth: 1 }),
        Plot.text(absent, { x: "arm", frameAnchor: "middle", text: "absent", rotate: -90, fill: muted, stroke: "var(--surface)", strokeWidth: 6, fontSize: 11 }),
        Plot.dot(trials, { x: "arm", y: "value", r: 2, dx: 9, fill: muted, fillOpacity: 0.65 }),
        Plot.ruleX(points.filter((d) => d.low != null && !d.baseline), { x: "arm", y1: "low", y2: "high", stroke: ink, strokeWidth: 1.75 }),
        Plot.dot(others, { x: "arm", y: "tok_s", r: 4.25, fill: ink }),
        Plot.dot(ties, { x: "arm", y: "tok_s", r: 5, symbol: "diamond", fill: ink }),
        Plot.dot(chosen, { x: "arm", y: "tok_s", r: 8.5, stroke: accent, strokeWidth: 2 }),
        Plot.text(chosen, { x: "arm", y: (d) => Math.max(d.tok_s, d.high ?? 0), dy: -16, text: () => "choice", fill: accent, fontWeight: 600, stroke: "var(--surface)", strokeWidth: 4 }),
        ...apart(side).map((d) => Plot.text([d], { y: "y", dy: d.dy, text: "text", frameAnchor: "right", textAnchor: "start", dx: 7, fill: d.fill })),
        tip(points, { x: "arm", y: "tok_s" }),
      ],
    }));
  }

  /** Every panel has its own scale, or narrow intervals would vanish beside a large gain; 1 is always in it. */
  function ratioDomain(rows) {
    const seen = rows.flatMap((d) => [d.ratio, d.low, d.high]).filter((v) => v != null);
    const [low, high] = d3.extent([...seen, 0.9, 1.1]);
    const room = 0.05 * (high - low);
    return [low - room, high + room];
  }

  const READINGS = [
    { reading: "better", symbol: "triangle", fill: "var(--better)", stroke: "var(--better)" },
    { reading: "level", symbol: "circle", fill: "var(--surface)", stroke: ink },
    { reading: "worse", symbol: "triangle2", fill: "var(--worse)", stroke: "var(--worse)" },
  ];

  function ratio(panel, width, label) {
    const named = panel.rows.map((d) => d.arm);
    const chosen = panel.rows.filter((d) => d.role === "choice");
    const marginRight = 7.1 * d3.max(panel.rows, (d) => d.text.length) + 8;
    const marginLeft = 8 + longest(named);
    const ticks = Math.max(2, Math.floor((width - marginLeft - marginRight) / 45));
    return Plot.plot(base(width, label, {
      height: 50 + 26 * named.length, marginTop: 8, marginBottom: 40, marginRight, marginLeft,
      x: { domain: ratioDomain(panel.rows), ticks, label: "times the baseline", labelAnchor: "center", labelArrow: "none", tickSize: 0 },
      y: { type: "band", domain: order.filter((d) => named.includes(d)), tickFormat: (d) => name.get(d), label: null, tickSize: 0 },
      marks: [
        Plot.gridX({ ticks, stroke: "var(--line)", strokeOpacity: 1 }),
        Plot.ruleX([1], { stroke: ink, strokeWidth: 1.25 }),
        Plot.ruleY(panel.rows.filter((d) => d.low != null), { y: "arm", x1: "low", x2: "high", stroke: ink, strokeWidth: 2 }),
        ...READINGS.map((r) => Plot.dot(panel.rows.filter((d) => d.reading === r.reading), { y: "arm", x: "ratio", symbol: TRIANGLES[r.symbol] ?? r.symbol, r: 4.25, fill: r.fill, stroke: r.stroke, strokeWidth: 1.5 })),
        Plot.dot(chosen, { y: "arm", x: "ratio", r: 8.5, stroke: accent, strokeWidth: 2 }),
        Plot.text(panel.rows, { y: "arm", text: "text", frameAnchor: "right", textAnchor: "start", dx: 8, fill: ink, fontWeight: (d) => (d.role === "choice" ? 600 : 400) }),
      ],
    }));
  }

  // Plot's own symbols have no triangle that points down.
  const down = { draw(context, size) { const r = Math.sqrt(size / Math.PI) * 1.25; context.moveTo(0, r); context.lineTo(r, -r * 0.8); context.lineTo(-r, -r * 0.8); context.closePath(); } };
  const TRIANGLES = { triangle2: down };

  const longest = (names) => 7 * d3.max(names, (d) => name.get(d).length);

  function acceptance(panel, width, label) {
    const named = panel.points.map((d) => d.arm);
    const series = [
      { key: "accept_len", text: "accept length", symbol: "circle", fill: ink, dash: null },
      { key: "tokens_per_step", text: "tokens per step", symbol: "square", fill: "var(--surface)", dash: "4 3" },
    ].map((s) => ({ ...s, points: panel.points.filter((d) => d[s.key] != null) })).filter((s) => s.points.length);
    const top = Math.max(2, d3.max(series, (s) => d3.max(s.points, (d) => d[s.key])));
    const height = 220, marginTop = 12, marginBottom = 40, inset = 8;
    const px = d3.scaleLinear([1, top], [height - marginBottom, marginTop + inset]);
    const ends = series.map((s) => { const last = s.points.at(-1); return { y: last[s.key], px: px(last[s.key]), dy: 0, text: s.text, fill: ink }; });
    return Plot.plot(base(width, label, {
      height, marginTop, marginBottom, marginRight: 106, marginLeft: 36,
      x: { type: "point", domain: order.filter((d) => named.includes(d)), tickFormat: (d) => tick.get(d), label: "depth", labelAnchor: "center", labelArrow: "none", padding: 0.4, tickSize: 0 },
      y: { domain: [1, top], insetTop: inset, ticks: 5, label: null, tickSize: 0 },
      marks: [
        Plot.gridY({ ticks: 5, stroke: "var(--line)", strokeOpacity: 1 }),
        Plot.ruleY([1], { stroke: "var(--strong-line)" }),
        ...series.flatMap((s) => [
          Plot.line(s.points, { x: "arm", y: s.key, stroke: s.dash ? muted : ink, strokeWidth: 1.5, strokeDasharray: s.dash }),
          Plot.dot(s.points, { x: "arm", y: s.key, symbol: s.symbol, r: 4, fill: s.fill, stroke: ink, strokeWidth: 1.5, title: (d) => `${s.text} ${d[s.key]}` }),
        ]),
        ...apart(ends).map((d) => Plot.text([d], { y: "y", dy: d.dy, text: "text", frameAnchor: "right", textAnchor: "start", dx: 6, fill: d.fill })),
      ],
    }));
  }

  function timeline(panel, width, label) {
    const trials = panel.trials;
    const named = order.filter((arm) => trials.some((d) => d.arm === arm));
    const phases = trials.flatMap((d) => d.phases.map((p) => ({ ...p, arm: d.arm })));
    const end = d3.max(trials, (d) => d.to);
    const marginLeft = 12 + longest(named), marginRight = 12;
    const wide = (d) => ((d.to - d.from) / end) * (width - marginLeft - marginRight);
    const rounds = d3.groups(trials.filter((d) => d.round != null), (d) => d.round).map(([n, of]) => ({ n, at: d3.min(of, (d) => d.from) }));
    const inside = { y: "arm", x: (d) => (d.from + d.to) / 2, fill: "var(--on-measure)", fontSize: 11, fontWeight: 600 };
    const voids = trials.filter((d) => d.status === "void");
    const dead = trials.filter((d) => d.status === "did-not-start");
    const sound = trials.filter((d) => d.status !== "void" && d.status !== "did-not-start" && wide(d) >= 16);
    return Plot.plot(base(width, label, {
      height: 66 + 30 * named.length, marginTop: 24, marginBottom: 40, marginLeft, marginRight,
      x: { domain: [0, end], label: "seconds since the start of the run", labelAnchor: "center", labelArrow: "none", ticks: Math.max(3, width / 110), tickSize: 0 },
      y: { type: "band", domain: named, tickFormat: (d) => name.get(d), label: null, tickSize: 0, padding: 0.22 },
      marks: [
        Plot.gridX({ stroke: "var(--line)", strokeOpacity: 1, ticks: Math.max(3, width / 110) }),
        Plot.ruleX(rounds.filter((d) => d.at > 0 && d.n > 1), { x: "at", stroke: "var(--strong-line)", strokeDasharray: "2 3" }),
        Plot.text(rounds, { x: "at", frameAnchor: "top", dy: -16, dx: 3, text: (d) => `round ${d.n}`, textAnchor: "start", fill: muted }),
        ...["start", "measure", "stop"].map((p) => Plot.barX(phases.filter((d) => d.phase === p), { y: "arm", x1: "from", x2: "to", fill: `var(--${p})` })),
        Plot.barX(voids, { y: "arm", x1: "from", x2: "to", fill: "url(#hatch)", stroke: ink }),
        Plot.barX(dead, { y: "arm", x1: "from", x2: "to", fill: "none", stroke: ink }),
        Plot.dot(dead, { y: "arm", x: (d) => (d.from + d.to) / 2, symbol: "times", r: 5, stroke: "var(--on-measure)", strokeWidth: 2 }),
        Plot.text(sound, { ...inside, text: (d) => (d.status === "disturbed" ? `${d.number}!` : d.number) }),
        Plot.text(voids.filter((d) => wide(d) >= 16), { ...inside, text: "number", fill: ink, stroke: "var(--surface)", strokeWidth: 4 }),
        Plots.tip(Plot.pointerX)(trials, { y: "arm", x: (d) => (d.from + d.to) / 2 }),
      ],
    }));
  }

  const PLOTS = {
    speed: { draw: speed, data: data.speed },
    ratio: { draw: ratio, data: data.ratio },
    acceptance: { draw: acceptance, data: data.acceptance },
    timeline: { draw: timeline, data: [data.timeline] },
  };

  Plots.show((kind, index, width, label) => PLOTS[kind].draw(PLOTS[kind].data[index], width, label));
})();
