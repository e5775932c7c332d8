// Shows the last turn of each call on the page Live. Turns are not stored: a page shows only those that
// are spoken while it is open.
export function showTurns(follow) {
  const list = document.querySelector("[data-turns]");
  if (!list) return;
  follow(list.dataset.turns, {
    onEvent: ({ call_id: call, role, text }) => {
      const line = call && document.getElementById(`turn-${call}`);
      if (!line) return; // the event of the connection, or a call that the page does not show yet
      line.querySelector(".by").textContent = (role === "agent" ? list.dataset.agent : list.dataset.person) + ":";
      line.querySelector(".said").textContent = text;
      line.hidden = false;
    },
    onState: () => {},
  });
}
