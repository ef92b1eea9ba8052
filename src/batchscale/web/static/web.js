"use strict";
// Scripts of the pages: sign-in code from the address, interactive charts, live status, forms that update.
(function () {
  const csrf = document.querySelector('meta[name="csrf"]').content;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // The one-time code is behind "#", which browsers never send: move it from the address into the form.
  // The link may also be opened in a tab that shows this page already: then only the part behind "#" changes.
  const signIn = document.getElementById("sign-in");
  function signInWithCode() {
    if (location.hash.length < 2) { return; }
    document.getElementById("secret").value = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, "", location.pathname);
    signIn.requestSubmit();
  }
  if (signIn) {
    signInWithCode();
    addEventListener("hashchange", signInWithCode);
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

  // Readers without scripts get a drawing; it is also shown if a chart cannot be made.
  function drawing(figure) {
    const part = document.createElement("template");
    part.innerHTML = figure.querySelector("noscript").textContent;
    return part.content;
  }
  function explore(figure) {
    return embed(figure).catch(function () {
      if (!figure.querySelector(".explored, picture")) { figure.insertBefore(drawing(figure), figure.firstChild); }
    });
  }
  async function embed(figure) {
    if (figure.closest("details:not([open])")) { return; }
    const url = new URL(figure.dataset.chart, location.href);
    url.searchParams.set("theme", dark.matches ? "dark" : "light");
    url.searchParams.set("width", Math.max(100, Math.floor(figure.clientWidth)));
    const answer = await fetch(url);
    if (!answer.ok) { throw new Error("no chart"); }
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
    const made = await window.vegaEmbed(place, spec, options);
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", drawing(figure).querySelector("img").alt);
    if (old) { old.remove(); }
    if (views.has(figure)) { views.get(figure).finalize(); } // else its listeners and data are never freed
    views.set(figure, made);
  }
  const views = new Map();
  function exploreAll() {
    for (const figure of document.querySelectorAll("figure[data-chart]")) { explore(figure); }
  }
  exploreAll();
  document.addEventListener("htmx:afterSettle", function () { // charts that were swapped in; those swapped out go
    for (const [figure, made] of views) { if (!figure.isConnected) { made.finalize(); views.delete(figure); } }
    for (const figure of document.querySelectorAll("figure[data-chart]")) { if (!views.has(figure)) { explore(figure); } }
  });
  dark.addEventListener("change", exploreAll);
  for (const details of document.querySelectorAll("details")) {
    details.addEventListener("toggle", function () {
      for (const figure of details.querySelectorAll("figure[data-chart]")) {
        if (details.open && !views.has(figure)) { explore(figure); }
      }
    });
  }
  let wide = innerWidth;
  let resized = null;
  addEventListener("resize", function () {
    clearTimeout(resized);
    resized = setTimeout(function () { if (innerWidth !== wide) { wide = innerWidth; exploreAll(); } }, 400);
  });

  // Replace content; scroll positions, focus, and what the reader folded or unfolded stay.
  function replaceContent(place, html) {
    const label = function (part) { return part.getAttribute("aria-label"); };
    const scrolled = new Map();
    for (const part of place.querySelectorAll(".scroll")) { scrolled.set(label(part), part.scrollLeft); }
    const focused = place.contains(document.activeElement) ? label(document.activeElement) : null;
    const title = function (part) { return part.querySelector("summary").textContent; };
    const folded = new Map();
    for (const part of place.querySelectorAll("details")) { folded.set(title(part), part.open); }
    place.innerHTML = html; // made and escaped by our own templates
    for (const part of place.querySelectorAll("details")) {
      if (folded.has(title(part))) { part.open = folded.get(title(part)); }
    }
    for (const part of place.querySelectorAll(".scroll")) {
      part.scrollLeft = scrolled.get(label(part)) || 0;
      if (focused !== null && label(part) === focused) { part.focus({ preventScroll: true }); }
    }
  }

  // The controls follow the state of the run, unless the reader is using them.
  const control = document.getElementById("control");
  async function renewControl() {
    const busy = control.contains(document.activeElement) || control.querySelector("details[open] form");
    if (!busy) {
      const answer = await fetch(control.dataset.source).catch(function () { return { ok: false }; });
      if (answer.ok) { control.innerHTML = await answer.text(); } // made and escaped by our own templates
    }
    laterControl(busy);
  }
  let next = null;
  function laterControl(again) {
    clearTimeout(next);
    if (again || control.querySelector("[data-again]")) { next = setTimeout(renewControl, 1000); }
  }
  if (control) { laterControl(false); }

  const runStatus = document.getElementById("run-status");
  if (runStatus && runStatus.dataset.events) {
    const lost = document.getElementById("lost");
    const announced = document.getElementById("announcement");
    let stream = null;
    let curve = null;
    let state = null;
    let alive = !("starting" in runStatus.dataset); // a run that is starting still has the status of the run before
    let waiting = null;
    const onStatus = function (event) {
      const update = JSON.parse(event.data);
      lost.hidden = true;
      replaceContent(runStatus, update.html);
      document.body.dataset.state = update.state;
      if (state !== update.state) { // not every step is read aloud
        announced.textContent = update.state === "records" ? "No run is going on." : "The run is " + update.state + ".";
        renewControl();
      }
      state = update.state;
      if (curve !== null && update.curve !== curve && waiting === null) {
        waiting = setTimeout(function () { waiting = null; refresh(); }, 200 + 1800 * Math.random()); // not all at once
      }
      curve = update.curve;
      alive = alive || update.state === "running" || update.state === "silent";
      if (alive && (update.state === "finished" || update.state === "stopped")) { stream.close(); refresh(); }
    };
    const connect = function () {
      stream = new EventSource(runStatus.dataset.events);
      stream.addEventListener("standing", onStatus);
      stream.addEventListener("open", function () { lost.hidden = true; });
      stream.addEventListener("error", function () {
        lost.hidden = false;
        if (stream.readyState === EventSource.CLOSED) { setTimeout(connect, 5000); } // refused for now
      });
    };
    connect();
    window.addEventListener("pagehide", function () { stream.close(); });
  }
  // The chart stays where it is and is drawn again; the parts around it are exchanged.
  async function refresh() {
    const figure = document.getElementById("chart");
    const answer = await fetch(runStatus.dataset.answer);
    if (!answer.ok) { return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!figure && fresh.getElementById("chart")) { location.reload(); return; } // the first point: all parts appear
    for (const id of ["figures", "meaning", "points", "words"]) {
      const part = fresh.getElementById(id);
      const place = document.getElementById(id);
      if (part && place) { replaceContent(place, part.innerHTML); }
    }
    if (figure) { explore(figure); }
  }

  // What changed since the reader last looked at this experiment: compared with what this browser stored then.
  const since = document.getElementById("since");
  const place = "seen " + location.pathname;
  const AWAY_S = 60;
  function known() {
    const part = document.getElementById("known");
    if (!part) { return null; }
    const card = document.querySelector("#figures .card");
    const text = function (name) { const found = card.querySelector(name); return found ? found.textContent : ""; };
    const critical = card ? text(".value") + (text(".interval") ? " (" + text(".interval") + ")" : "") : "";
    return Object.assign(JSON.parse(part.dataset.known), { critical: critical, at: Date.now() });
  }
  function remember() {
    const now = known();
    if (!now || !since.hidden) { return; } // what is shown was not read yet
    try { localStorage.setItem(place, JSON.stringify(now)); } catch (error) { /* no storage: nothing to compare */ }
  }
  function changes(old, now) {
    const texts = [];
    const number = function (value) { return value.toLocaleString("en"); };
    const percent = function (value) { return Math.round(100 * value) + " %"; };
    if (now.trials > old.trials) {
      texts.push(number(now.trials - old.trials) + " more trials ended, " + number(now.trials) + " in all.");
    }
    for (const [size, steps] of Object.entries(now.best)) {
      const before = old.best[size];
      const at = "Batch size " + number(Number(size));
      if (before === undefined) { texts.push(at + " reached the goal, after " + number(steps) + " steps."); }
      else if (steps < before) { texts.push(at + " needs " + number(steps) + " steps, before " + number(before) + "."); }
    }
    if (now.critical && !now.critical.startsWith("–") && now.critical !== old.critical) {
      texts.push("Critical batch size: " + now.critical + (old.critical ? ", before " + old.critical : "") + ".");
    }
    if (now.progress !== null && old.progress !== null && percent(now.progress) !== percent(old.progress)) {
      texts.push(percent(now.progress) + " done, before " + percent(old.progress) + ".");
    }
    if (now.state !== old.state) { texts.push("The run is " + now.state + ", before " + old.state + "."); }
    return texts;
  }
  function ago(seconds) {
    const units = [[86400, "day"], [3600, "hour"], [60, "minute"], [0, "second"]];
    const [size, name] = units.find(function (unit) { return seconds >= unit[0]; });
    const count = Math.floor(seconds / (size || 1));
    return count + " " + name + (count === 1 ? "" : "s") + " ago";
  }
  function showChanges() {
    let old = null;
    try { old = JSON.parse(localStorage.getItem(place)); } catch (error) { return; }
    const now = known();
    if (!old || !now || !old.best || now.at - old.at < 1000 * AWAY_S) { return; }
    const texts = changes(old, now);
    if (texts.length === 0) { return; }
    since.querySelector("h2").textContent = "Since you last looked, " + ago((now.at - old.at) / 1000);
    const list = since.querySelector("ul");
    list.replaceChildren();
    for (const text of texts.slice(0, 8)) {
      const item = document.createElement("li");
      item.textContent = text;
      list.appendChild(item);
    }
    since.hidden = false;
  }
  if (since) {
    showChanges();
    since.querySelector("button").addEventListener("click", function () { since.hidden = true; remember(); });
    document.addEventListener("visibilitychange", function () {
      if (document.hidden) { remember(); } else { setTimeout(showChanges, 2500); } // the stream is up to date by then
    });
    addEventListener("pagehide", remember);
    setInterval(function () { if (!document.hidden) { remember(); } }, 30000);
  }

  // Rows of live runs are requested again, unless the reader is selecting some.
  async function rowsAgain() {
    const rows = document.getElementById("rows");
    if (!rows || !rows.dataset.again) { return; }
    if (!document.hidden && !rows.querySelector("input:checked") && !rows.contains(document.activeElement)) {
      const answer = await fetch(location.href).catch(function () { return { ok: false }; });
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.getElementById("rows");
        if (fresh) { rows.replaceWith(document.adoptNode(fresh)); }
      }
    }
    laterRows();
  }
  function laterRows() {
    const rows = document.getElementById("rows");
    if (rows && rows.dataset.again) { setTimeout(rowsAgain, 1000 * Number(rows.dataset.again)); }
  }
  laterRows();

  // A selected file is copied into the text; only text is sent.
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
