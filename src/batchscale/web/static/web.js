"use strict";
// What pages do beyond being read: the code from the address, charts to explore, live standing, forms that answer.
(function () {
  const csrf = document.querySelector('meta[name="csrf"]').content;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // The one-time code stands behind "#", which browsers never send: it goes into the form and out of the address.
  const signIn = document.getElementById("sign-in");
  if (signIn && location.hash.length > 1) {
    document.getElementById("secret").value = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, "", location.pathname);
    signIn.requestSubmit();
  }

  document.addEventListener("htmx:configRequest", function (event) { event.detail.headers["X-CSRF-Token"] = csrf; });

  let scripts = null;
  function chartScripts() {
    scripts = scripts || new Promise(function (resolve, reject) {
      const tag = document.createElement("script");
      tag.src = "/static/charts.js";
      tag.onload = resolve;
      tag.onerror = reject;
      document.head.appendChild(tag);
    });
    return scripts;
  }

  async function explore(figure) {
    const url = new URL(figure.dataset.chart, location.href);
    url.searchParams.set("theme", dark.matches ? "dark" : "light");
    const answer = await fetch(url);
    if (!answer.ok) { return; }
    const spec = await answer.json();
    await chartScripts();
    const place = document.createElement("div");
    const options = {
      renderer: "canvas", ast: true, actions: false, defaultStyle: false,
      tooltip: { disableDefaultStyle: true }, config: {},
    };
    const old = figure.querySelector(".explored");
    figure.insertBefore(place, figure.firstChild);
    place.className = "explored";
    await window.vegaEmbed(place, spec, options);
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", figure.querySelector("img").alt);
    figure.querySelector("picture").hidden = true;
    if (old) { old.remove(); }
  }
  function exploreAll() {
    for (const figure of document.querySelectorAll("figure[data-chart]")) { explore(figure).catch(function () {}); }
  }
  exploreAll();
  dark.addEventListener("change", exploreAll);

  const standing = document.getElementById("standing");
  if (standing && standing.dataset.events) {
    const stream = new EventSource(standing.dataset.events);
    let curve = null;
    let alive = !("starting" in standing.dataset); // what is starting still tells how it ended before
    let waiting = null;
    stream.addEventListener("standing", function (event) {
      const told = JSON.parse(event.data);
      standing.innerHTML = told.html; // made and escaped by our own template
      document.body.dataset.state = told.state;
      if (curve !== null && told.curve !== curve && waiting === null) {
        waiting = setTimeout(function () { waiting = null; refresh(); }, 3000);
      }
      curve = told.curve;
      alive = alive || told.state === "running" || told.state === "silent";
      if (alive && (told.state === "finished" || told.state === "stopped")) { stream.close(); refresh(); }
    });
    window.addEventListener("pagehide", function () { stream.close(); });
  }
  async function refresh() {
    const answer = await fetch(standing.dataset.answer);
    if (answer.ok) { document.getElementById("answer").innerHTML = await answer.text(); }
    if (document.querySelector("figure[data-chart]")) { exploreAll(); } else { location.reload(); }
  }

  // A file that is chosen is put into the text; nothing but text is ever sent.
  const upload = document.getElementById("upload");
  if (upload) {
    upload.addEventListener("change", async function () {
      if (upload.files.length === 0) { return; }
      const text = document.getElementById("toml");
      text.value = (await upload.files[0].text()).slice(0, 200000);
      text.dispatchEvent(new Event("input", { bubbles: true }));
    });
  }
})();
