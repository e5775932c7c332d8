// The scripts of all pages. Every page works for reading without them.
import { follow } from "./stream.js";
import { refreshRegions } from "./regions.js";
import { startPasskeys } from "./passkey.js";
import { startStory } from "./story.js";
import { showTurns } from "./turns.js";

const body = document.body;

// The server writes times in the time zone of the browser. It learns the zone from a cookie.
function shareTimeZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const name = body.dataset.zoneCookie;
  const wanted = `${name}=${encodeURIComponent(zone)}`;
  if (!zone || document.cookie.split("; ").includes(wanted)) return;
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `${wanted}; Path=/; Max-Age=31536000; SameSite=Lax${secure}`;
  if (zone !== "UTC") refreshRegions({ all: true });
}

const units = [["second", 60], ["minute", 60], ["hour", 24]];

// Recent times are shown as "2 minutes ago". The title has the exact time.
export function updateTimes(root = document) {
  const format = new Intl.RelativeTimeFormat(body.dataset.language, { numeric: "auto", style: "short" });
  for (const element of root.querySelectorAll("time[data-relative]")) {
    let value = (Date.parse(element.dateTime) - Date.now()) / 1000;
    if (Math.abs(value) > 12 * 3600) continue;
    for (const [unit, size] of units) {
      if (Math.abs(value) < size || unit === "hour") {
        element.textContent = format.format(Math.round(value), unit);
        break;
      }
      value /= size;
    }
  }
}

// Counts the seconds since a time, for calls that are running.
function updateClocks() {
  for (const element of document.querySelectorAll("[data-since]")) {
    const total = Math.max(0, Math.floor((Date.now() - Date.parse(element.dataset.since)) / 1000));
    element.textContent = `${Math.floor(total / 60)}:${String(total % 60).padStart(2, "0")}`;
  }
}

// A control with data-open opens a dialog. In the dialog, data-match is the text that must be typed.
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-open]");
  if (opener) {
    event.preventDefault();
    document.getElementById(opener.dataset.open)?.showModal();
  }
  if (event.target.closest("[data-close]")) event.target.closest("dialog")?.close();
  for (const menu of document.querySelectorAll("details.switch[open], details.account[open], details.more[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("input", (event) => {
  const wanted = event.target.dataset?.match;
  if (!wanted) return;
  const button = event.target.form.querySelector("button[data-kind=danger]");
  button.disabled = event.target.value.trim() !== wanted;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    for (const menu of document.querySelectorAll("details.switch[open], details.account[open], details.more[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  }
});

// A form is sent once.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.sent) {
    event.preventDefault();
    return;
  }
  if (form.method === "post") {
    form.dataset.sent = "1";
    setTimeout(() => delete form.dataset.sent, 3000);
  }
});

function showConnection(state) {
  for (const element of document.querySelectorAll("[data-connection]")) {
    if (element.dataset.state === state) continue;
    element.dataset.state = state;
    element.textContent = body.dataset[{ open: "textOpen", lost: "textLost", polling: "textPolling" }[state] ?? "textWaiting"];
  }
}

document.addEventListener("htmx:afterSwap", () => updateTimes());
document.addEventListener("regions:replaced", () => {
  updateTimes();
  updateClocks();
});

shareTimeZone();
updateTimes();
updateClocks();
setInterval(updateTimes, 20_000);
setInterval(updateClocks, 1000);
startPasskeys();
startStory();

// Changes without an event, for example pauses and new call requests, are seen after this time.
const refreshInterval = 15_000;

// Pages of no workspace have no event stream.
const pollInterval = 5_000;

showTurns(follow);

if (!document.querySelector("main [data-live]")) {
  // nothing on this page changes
} else if (body.dataset.stream) {
  showConnection("waiting");
  setInterval(() => refreshRegions({ all: true }), refreshInterval);
  follow(body.dataset.stream, {
    onEvent: (event) => refreshRegions(event),
    onState: showConnection,
  });
} else {
  showConnection("polling");
  setInterval(() => refreshRegions({ all: true }), pollInterval);
}
