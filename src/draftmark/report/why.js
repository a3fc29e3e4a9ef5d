// Shows a moment's line beside the chart while a dot is pointed at or focused. Without it dots are links to the list.
"use strict";
(() => {
  const shown = document.getElementById("line");
  const dots = [...document.querySelectorAll("a.dot[data-moment]")];
  if (!shown || !dots.length) return;
  document.documentElement.classList.add("js");

  function show(dot) {
    const entry = document.getElementById(dot.dataset.moment);
    for (const old of document.querySelectorAll(".shown")) old.classList.remove("shown");
    dot.classList.add("shown");
    const title = document.createElement("b");
    title.textContent = dot.getAttribute("aria-label");
    const code = document.createElement("code");
    code.textContent = entry?.querySelector(".said")?.textContent ?? "";
    shown.replaceChildren(title, code);
  }

  // By time, whatever lane a dot is in: arrow keys walk through what happened.
  const order = [...dots].sort((a, b) => Number(a.dataset.order) - Number(b.dataset.order));
  const STEP = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  for (const dot of dots) {
    dot.addEventListener("pointerenter", () => show(dot));
    dot.addEventListener("focus", () => show(dot));
    dot.addEventListener("keydown", (event) => {
      const step = event.key === "Home" ? -order.length : event.key === "End" ? order.length : STEP[event.key];
      if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const at = order.indexOf(dot) + step;
      order[Math.max(0, Math.min(order.length - 1, at))].focus();
    });
  }
  show(order.find((dot) => dot.classList.contains("cause")) ?? order[0]);
})();
