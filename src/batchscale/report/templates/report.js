"use strict";
// What is folded is printed as well.
addEventListener("beforeprint", function () {
  for (const part of document.querySelectorAll("details")) { part.open = true; }
});
// Shows what a mark says (its aria-label) beside the pointer, the finger or the focus.
(function () {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.appendChild(tip);
  function show(event) {
    const mark = event.target.closest ? event.target.closest('svg [role="graphics-symbol"][aria-label]') : null;
    if (!mark || mark.getAttribute("aria-roledescription") === "axis") {
      tip.hidden = true;
      return;
    }
    tip.replaceChildren();
    for (const part of mark.getAttribute("aria-label").split("; ")) {
      const line = document.createElement("div");
      line.textContent = part;
      tip.appendChild(line);
    }
    tip.hidden = false;
    const box = mark.getBoundingClientRect();
    const x = event.clientX === undefined ? box.left : event.clientX;
    const y = event.clientY === undefined ? box.top : event.clientY;
    tip.style.left = Math.max(4, Math.min(x + 14, window.innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = Math.max(4, Math.min(y + 14, window.innerHeight - tip.offsetHeight - 8)) + "px";
  }
  for (const name of ["pointermove", "pointerdown"]) {
    document.addEventListener(name, show, { passive: true });
  }
  document.addEventListener("scroll", function () { tip.hidden = true; }, { passive: true });
})();
