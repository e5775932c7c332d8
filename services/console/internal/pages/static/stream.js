// One event stream for all tabs of the browser. The tab that holds a lock reads the stream and passes
// the events to the other tabs. EventSource is not used: after an error of HTTP it does not connect
// again, and a new object cannot send the id of the last event.

const minWait = 250;
const maxWait = 5000;

// The browser reads the stream again after this time without a byte. The server sends one every 15 s.
const silence = 40_000;

// While there is no stream, for example because the role may not read it, pages ask again.
const pollInterval = 5000;

export function follow(address, { onEvent, onState }) {
  const channel = new BroadcastChannel(`rf-stream:${address}`);
  const lastKey = `rf-last:${address}`;
  channel.onmessage = ({ data }) => {
    if (data.state) onState(data.state);
    if (data.event) onEvent(data.event);
  };
  const share = (message) => {
    channel.postMessage(message);
    channel.onmessage({ data: message });
  };
  const run = () => read(address, lastKey, share);
  if (navigator.locks) {
    navigator.locks.request(`rf-stream:${address}`, run);
  } else {
    run();
  }
}

// Reads the stream until the page is closed, unless it is refused. The tab keeps the lock meanwhile.
async function read(address, lastKey, share) {
  for (let wait = minWait; ; wait = Math.min(wait * 2, maxWait)) {
    try {
      const last = sessionStorage.getItem(lastKey) ?? "";
      const stop = new AbortController();
      const url = last ? `${address}?last_event_id=${encodeURIComponent(last)}` : address;
      const response = await fetch(url, { signal: stop.signal, headers: { Accept: "text/event-stream" }, cache: "no-store" });
      if (response.ok) {
        share({ state: "open" });
        // The page was rendered before the stream was open, so something can have changed between.
        share({ event: { all: true } });
        wait = minWait;
        await readMessages(response.body, stop, (id, event) => {
          if (id) sessionStorage.setItem(lastKey, id);
          share({ event });
        });
      } else if (response.status === 401) {
        share({ event: { all: true, ended: true } }); // the page sends the person to the sign-in
        await pause(pollInterval);
      } else if (response.status === 422) {
        return; // the person may not read this stream
      } else if (response.status === 403 || response.status === 404) {
        share({ state: "polling" });
        share({ event: { all: true } });
        await pause(pollInterval);
        continue;
      }
    } catch {
      // the connection broke
    }
    share({ state: "lost" });
    await pause(wait * (0.75 + Math.random() / 2));
  }
}

async function readMessages(stream, stop, onMessage) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let timer;
  try {
    for (;;) {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), silence);
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
        deliver(text.slice(0, end), onMessage);
        text = text.slice(end + 2);
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

function deliver(message, onMessage) {
  const fields = {};
  for (const line of message.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  if (!fields.data) return;
  onMessage(fields.id, fields.event === "reset" ? { all: true } : JSON.parse(fields.data));
}

const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));
