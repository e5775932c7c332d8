// The recording of a call: a waveform, and turns of the transcript that play their part.

export function startStory() {
  const audio = document.querySelector("audio[data-recording]");
  if (!audio) return;
  const turns = [...document.querySelectorAll("button[data-offset]")];
  for (const turn of turns) {
    turn.addEventListener("click", () => {
      audio.currentTime = Number(turn.dataset.offset);
      audio.play();
    });
  }
  audio.addEventListener("timeupdate", () => {
    let current;
    for (const turn of turns) {
      if (Number(turn.dataset.offset) <= audio.currentTime + 0.05) current = turn;
    }
    for (const turn of turns) turn.closest(".turn").toggleAttribute("data-now", turn === current && !audio.paused);
  });
  const wave = document.querySelector("canvas[data-wave]");
  if (wave) drawWave(audio, wave);
}

async function drawWave(audio, canvas) {
  try {
    const response = await fetch(audio.currentSrc || audio.src);
    const context = new OfflineAudioContext(1, 1, 8000);
    const sound = await context.decodeAudioData(await response.arrayBuffer());
    const peaks = peaksOf(sound, 220);
    const paint = () => paintWave(canvas, peaks, audio.duration ? audio.currentTime / audio.duration : 0);
    canvas.hidden = false;
    paint();
    audio.addEventListener("timeupdate", paint);
    new ResizeObserver(paint).observe(canvas);
    canvas.addEventListener("click", (event) => {
      audio.currentTime = (event.offsetX / canvas.clientWidth) * audio.duration;
    });
  } catch {
    canvas.hidden = true; // the player works without the waveform
  }
}

function peaksOf(sound, count) {
  const size = Math.max(1, Math.floor(sound.length / count));
  const channels = Array.from({ length: sound.numberOfChannels }, (_, i) => sound.getChannelData(i));
  return Array.from({ length: count }, (_, i) => {
    let peak = 0;
    for (const samples of channels) {
      for (let at = i * size; at < Math.min(samples.length, (i + 1) * size); at++) peak = Math.max(peak, Math.abs(samples[at]));
    }
    return peak;
  });
}

function paintWave(canvas, peaks, progress) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * scale;
  canvas.height = canvas.clientHeight * scale;
  const draw = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  const width = canvas.width / peaks.length;
  const top = Math.max(0.05, ...peaks);
  peaks.forEach((peak, i) => {
    const height = Math.max(2 * scale, (peak / top) * canvas.height * 0.92);
    draw.fillStyle = i / peaks.length <= progress ? style.color : style.getPropertyValue("--line-strong");
    draw.fillRect(i * width, (canvas.height - height) / 2, Math.max(1, width * 0.62), height);
  });
}
