(() => {
  "use strict";
  document.documentElement.classList.add("js");

  // The legend: hide and show a condition in every figure.
  for (const button of document.querySelectorAll("[data-toggle]")) {
    button.addEventListener("click", () => {
      const isShown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(isShown));
      for (const part of document.querySelectorAll(`[data-c="${button.dataset.toggle}"]`)) {
        part.classList.toggle("off", !isShown);
      }
    });
  }

  // Replays: one turn at a time, by button or by key.
  for (const replay of document.querySelectorAll(".replay")) {
    const turns = [...replay.querySelectorAll(".turn")];
    const where = replay.querySelector(".where");
    const all = replay.querySelector("[data-all]");
    const arrows = [...replay.querySelectorAll("[data-go]")];
    let at = 0;

    const show = (next) => {
      at = Math.max(0, Math.min(turns.length - 1, next));
      turns.forEach((turn, i) => turn.classList.toggle("now", i === at));
      where.textContent = `${at + 1} of ${turns.length}`;
      arrows.forEach((arrow) => {
        const target = at + Number(arrow.dataset.go);
        arrow.setAttribute("aria-disabled", String(target < 0 || target >= turns.length));
      });
    };
    const showAll = (isAll) => {
      replay.classList.toggle("all", isAll);
      all.setAttribute("aria-pressed", String(isAll));
    };

    arrows.forEach((arrow) => arrow.addEventListener("click", () => {
      showAll(false);
      show(at + Number(arrow.dataset.go));
    }));
    all.addEventListener("click", () => showAll(!replay.classList.contains("all")));
    replay.addEventListener("keydown", (event) => {
      const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: turns.length - 1 }[event.key];
      if (next === undefined || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      showAll(false);
      show(next);
    });
    show(0);
  }

  // On paper everything is open; afterwards it is as it was.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((part) => { part.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((part) => { part.open = false; }));
})();
