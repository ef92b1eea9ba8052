"use strict";
// Uploads of recordings, and the progress of work on an instrument.
(function () {
  const csrf = document.querySelector('meta[name="csrf"]').content;

  // Recordings are sent one after the other, unchanged.
  async function send(file, address, line) {
    for (;;) {
      line.textContent = file.name + ": uploading";
      const answer = await fetch(address, {
        method: "POST", body: file,
        headers: { "X-CSRF-Token": csrf, "Content-Type": "application/octet-stream", "X-File-Name": encodeURIComponent(file.name), "Accept": "text/plain" },
      });
      if (answer.status !== 429) {
        line.textContent = file.name + (answer.ok ? ": here" : ": " + (await answer.text()));
        return answer.ok;
      }
      line.textContent = file.name + ": waiting";
      await new Promise(function (resolve) { setTimeout(resolve, 2000); });
    }
  }
  async function sendFiles(input) {
    const list = input.parentElement.nextElementSibling;
    let all = true;
    for (const file of input.files) {
      const line = list.appendChild(document.createElement("li"));
      const is_here = await send(file, input.dataset.upload, line).catch(function () { line.textContent = file.name + ": cut off"; return false; });
      all = all && is_here;
    }
    if (all && input.files.length > 0) { location.reload(); }
  }
  for (const input of document.querySelectorAll("input[data-upload]")) {
    input.addEventListener("change", function () { sendFiles(input); });
    if (input.files.length > 0) { sendFiles(input); } // selected before this script was loaded
  }
  const work = document.getElementById("standing-of-job");
  if (work && work.dataset.again) {
    const update = async function () {
      const answer = await fetch(work.dataset.again).catch(function () { return { ok: false }; });
      if (answer.ok) {
        const html = await answer.text();
        const playing = Array.from(work.querySelectorAll("audio")).some(function (sound) { return !sound.paused; });
        if (!playing && html !== work.dataset.seen) { work.innerHTML = html; work.dataset.seen = html; } // our own template
        if (!html.includes("state running")) { if (!playing) { location.reload(); return; } }
      }
      setTimeout(update, 2000);
    };
    setTimeout(update, 1500);
  }
})();
