// What the plots of all pages share: their data, their look, and being drawn into boxes as wide as the page has them.
const Plots = (() => {
  "use strict";
  const root = document.documentElement;
  const FONT = 12;

  const base = (width, label, options) => ({
    width,
    ariaLabel: label,
    style: { fontFamily: "inherit", fontSize: `${FONT}px`, background: "transparent", color: "var(--muted)" },
    ...options,
  });

  /** A text that follows the pointer, which `pointer` finds the point for. */
  const tip = (pointer) => (points, channels) =>
    Plot.tip(points, pointer({ ...channels, title: "text", fontSize: FONT, fill: "var(--surface)", stroke: "var(--strong-line)", textPadding: 8 }));

  /** Fills every box by draw(kind, index, width, label), now and whenever its width changes. */
  function show(draw) {
    function fill(box, fixed) {
      const width = fixed ?? Math.floor(box.clientWidth);
      if (!width || box.dataset.width === String(width)) return;
      box.dataset.width = String(width);
      try {
        const svg = draw(box.dataset.plot, Number(box.dataset.index), width, box.dataset.label);
        svg.setAttribute("role", "img");
        box.replaceChildren(svg);
      } catch (failure) {
        box.textContent = "This plot could not be drawn; its figures are in the tables.";
        console.error(failure);
      }
    }

    root.classList.add("js");
    const boxes = [...document.querySelectorAll(".plot")];
    boxes.forEach((box) => fill(box));
    const watcher = new ResizeObserver((entries) => requestAnimationFrame(() => entries.forEach((e) => fill(e.target))));
    boxes.forEach((box) => watcher.observe(box));
    // Paper has no resize event: draw for half a page and a whole one, so that text keeps its size.
    window.addEventListener("beforeprint", () => boxes.forEach((box) => fill(box, box.closest(".panels") ? 310 : 660)));
    window.addEventListener("afterprint", () => boxes.forEach((box) => fill(box)));
    root.dataset.plots = String(document.querySelectorAll(".plot svg").length);
  }

  return { data: JSON.parse(document.getElementById("plot-data").textContent), FONT, base, tip, show };
})();
