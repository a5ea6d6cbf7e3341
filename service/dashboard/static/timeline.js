// What a device did: jobs as bars, steps inside them, gaps between.
"use strict";
{
  const { colour, duration, text, tooltip, axis, chart, load } = fuseplan;
  const place = document.getElementById("timeline");

  // Jobs that ran at the same time stand on lanes of their own.
  const lanes = (jobs) => {
    const ends = [];
    return jobs.map((job) => {
      let lane = ends.findIndex((end) => end <= job.begin);
      if (lane < 0) lane = ends.length;
      ends[lane] = job.end;
      return lane;
    });
  };
  const clock = (seconds) => {
    const whole = Math.round(seconds);
    const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    return h ? `${h} h ${m} min` : m ? `${m} min ${s} s` : `${s} s`;
  };
  const reasons = { idle: "idle", waiting: "a job waited", silent: "nothing stored" };

  const bar = (params, api, height, style) => {
    const [x, y] = api.coord([api.value(0), api.value(2)]);
    const [to] = api.coord([api.value(1), api.value(2)]);
    const tall = api.size([0, 1])[1] * height;
    const area = params.coordSys;
    const left = Math.max(x, area.x), right = Math.min(Math.max(to, x + 1), area.x + area.width);
    if (right <= left) return null;
    return { type: "rect", shape: { x: left, y: y - tall / 2, width: right - left, height: tall, r: height > 0.5 ? 3 : 0 }, style };
  };

  const zoomed = () => {
    const [a, b] = (new URLSearchParams(location.search).get("zoom") ?? "").split("~").map(Number);
    return Number.isFinite(a) && Number.isFinite(b) && a < b ? { start: a, end: b } : { start: 0, end: 100 };
  };

  const options = (told) => () => {
    const lane = lanes(told.jobs);
    const since = new Date(told.since).getTime();
    const many = told.seconds > 36 * 3600;
    const time = (seconds) => {
      const at = new Date(since + seconds * 1000).toISOString();
      return many ? at.slice(5, 16).replace("T", " ") : told.seconds < 600 ? at.slice(11, 19) : at.slice(11, 16);
    };
    const lane_of = Object.fromEntries(told.jobs.map((job, i) => [job.job, lane[i]]));
    // A step is filled by shares: failed at the foot, disturbed above, the rest sound.
    const filled = (params, api) => {
      const whole = bar(params, api, 0.46, { fill: colour("accent") });
      if (!whole) return null;
      const step = told.steps[params.dataIndex];
      const bad = step.failed / Math.max(1, step.trials), warn = Math.min(1 - bad, step.contended / Math.max(1, step.trials));
      const part = (from, share, tint) => ({ type: "rect", shape: { ...whole.shape, r: 0, y: whole.shape.y + whole.shape.height * (1 - from - share), height: whole.shape.height * share }, style: { fill: colour(tint) } });
      return { type: "group", children: [whole, part(0, bad, "bad"), part(bad, warn, "warn")] };
    };
    const jobs = told.jobs.map((job, i) => ({
      value: [job.begin, job.end, lane[i]], href: `/jobs/${job.job}`,
      told: `${job.title || job.job}, ${job.state}\nran ${clock(job.end - job.begin)} after waiting ${clock(job.waited_seconds)}\n${job.trials} trials, ${job.contended} disturbed, ${job.killed} killed`,
    }));
    const steps = told.steps.map((step) => ({
      value: [step.begin, step.end, lane[step.job]], href: `/jobs/${told.jobs[step.job].job}`,
      told: `${step.trials} trials in ${duration(step.end - step.begin)}\n${step.contended} disturbed, ${step.failed} failed, ${step.killed} killed`,
    }));
    const gaps = told.gaps.map((gap) => ({
      value: [gap.begin, gap.end, lane_of[gap.job] ?? 0], silent: gap.reason === "silent", waiting: gap.reason === "waiting",
      href: gap.job ? `/jobs/${gap.job}` : "", told: `${reasons[gap.reason]} for ${clock(gap.end - gap.begin)}`,
    }));
    return {
      animation: false, textStyle: text(),
      grid: { left: 24, right: 24, top: 12, bottom: 60 },
      tooltip: { ...tooltip(), trigger: "item", formatter: (item) => item.data.told ?? "" },
      dataZoom: [{ type: "inside", ...zoomed(), zoomOnMouseWheel: "ctrl" }, { type: "slider", ...zoomed(), height: 14, bottom: 4, showDataShadow: false, showDetail: false, borderColor: colour("line"), fillerColor: colour("tint"), handleStyle: { color: colour("soft") } }],
      xAxis: axis("", { type: "value", min: 0, max: Math.max(1, told.seconds), axisLabel: { ...text(), formatter: time, hideOverlap: true, showMaxLabel: false }, splitLine: { show: false } }),
      yAxis: axis("", { type: "value", min: -0.5, max: Math.max(0, ...lane) + 0.5, inverse: true, axisLabel: { show: false }, axisTick: { show: false }, splitLine: { show: false }, axisLine: { show: false } }),
      series: [
        { type: "custom", data: gaps.filter((gap) => !gap.silent), renderItem: (p, api) => bar(p, api, 0.14, { fill: colour(gaps.filter((gap) => !gap.silent)[p.dataIndex].waiting ? "warn" : "line-strong") }) },
        { type: "custom", data: jobs, cursor: "pointer", renderItem: (p, api) => bar(p, api, 0.62, { fill: colour("tint"), stroke: colour("accent"), lineWidth: 1.2 }) },
        { type: "custom", data: steps, cursor: "pointer", renderItem: filled },
        { type: "custom", data: gaps.filter((gap) => gap.silent), renderItem: (p, api) => bar(p, api, 0.46, { fill: colour("tint"), stroke: colour("soft"), lineWidth: 1, lineDash: [3, 3] }) },
      ],
    };
  };

  const start = async () => {
    const told = await load(place);
    if (!told) return;
    const drawn = chart("timeline", options(told), (to) => { location.href = to; });
    drawn.made.on("datazoom", () => {
      const [{ start: a, end: b }] = drawn.made.getOption().dataZoom;
      const query = new URLSearchParams(location.search);
      if (a > 0 || b < 100) query.set("zoom", `${a.toFixed(2)}~${b.toFixed(2)}`);
      else query.delete("zoom");
      history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
    });
  };
  if (place) start();
}
