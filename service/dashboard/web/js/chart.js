// Charts by uPlot, in the colours of the theme.
import uPlot from '../vendor/uplot.js';
import { html, useEffect, useRef } from './lib.js';
import { absolute, timeStyle } from './time.js';
import { themeNow } from './settings.js';

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Each series on top of those before it. */
function stack(columns) {
	const sum = new Array(columns[0].length).fill(0);
	return columns.map((c) => c.map((v, i) => (sum[i] += v ?? 0)));
}

const decade = (v, round) => 10 ** round(Math.log10(v) + (round === Math.ceil ? -1e-9 : 1e-9));
/** The powers of ten from min to max, six at most. */
function decades(min, max) {
	const from = Math.round(Math.log10(min)), n = Math.round(Math.log10(max)) - from;
	const step = Math.ceil((n + 1) / 6);
	return Array.from({ length: Math.floor(n / step) + 1 }, (_, i) => 10 ** (from + i * step));
}

/**
 * xs: seconds; series: [{label, tone, values}]; stacked: areas on each other, as bars; powers: each
 * step of the axis is ten times the one before, so that small values are seen beside large ones; format: of a value.
 */
export function Chart({ xs, series, stacked, powers, format, height = 180, label }) {
	const box = useRef(null);
	const plot = useRef(null);
	const theme = themeNow.value;
	const utc = timeStyle.value === 'utc';
	const shape = series.map((s) => s.label).join();
	const data = () => {
		const columns = series.map((s) => s.values);
		return [xs, ...(stacked ? stack(columns).reverse() : columns)];
	};
	useEffect(() => {
		const drawn = stacked ? [...series].reverse() : series;
		const step = xs.length > 1 ? xs[1] - xs[0] : 60; // a bar begins at its time
		const days = xs.length && xs[xs.length - 1] - xs[0] > 2 * 86_400;
		const clock = (_, at) => at.map((s) => (days ? absolute(s * 1000, utc).slice(5, 13).replace(' ', ' · ') + ' h' : absolute(s * 1000, utc).slice(11, 16)));
		const axis = { stroke: css('--faint'), grid: { stroke: css('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
		const options = {
			width: box.current.clientWidth || 300, height, legend: { show: false }, padding: [10, 18, 0, 0], cursor: { y: false, points: { show: !stacked } },
			tzDate: utc ? (ts) => uPlot.tzDate(new Date(ts * 1e3), 'Etc/UTC') : undefined,
			scales: { x: { range: (_, min, max) => [min, max + (stacked ? step : step / 2)] }, y: powers ? { distr: 3, range: (_, min, max) => (min > 0 ? [decade(min, Math.floor), Math.max(decade(max, Math.ceil), decade(min, Math.floor) * 10)] : [1e-3, 1]) } : { range: (_, min, max) => [0, max > 0 ? max * 1.1 : 1] } },
			axes: [{ ...axis, space: 70, size: 30, values: clock }, { ...axis, size: powers ? 64 : 56, splits: powers && ((_, i, min, max) => decades(min, max)), values: (_, vs) => vs.map((v) => format(v)) }],
			series: [{}, ...drawn.map((s) => ({
				label: s.label, stroke: css('--' + s.tone), width: stacked ? 0 : 2, fill: stacked ? css('--' + s.tone) : undefined, points: { show: !stacked, size: 5 },
				paths: stacked ? uPlot.paths.bars({ size: [0.85, 40], align: 1 }) : undefined,
			}))],
		};
		plot.current = new uPlot(options, data(), box.current);
		const watch = new ResizeObserver(() => { if (box.current) plot.current.setSize({ width: box.current.clientWidth, height }); });
		watch.observe(box.current);
		return () => { watch.disconnect(); plot.current.destroy(); };
	}, [shape, theme, stacked, utc]);
	useEffect(() => { plot.current?.setData(data()); }, [xs, series]);
	return html`<figure class="chart"><div ref=${box} role="img" aria-label=${label}></div>
		<figcaption class="legend">${series.map((s) => html`<span><i class=${s.tone}></i>${s.label}</span>`)}</figcaption></figure>`;
}
