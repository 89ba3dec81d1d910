// One place for what the modules use of the libraries.
export { html, render } from '../vendor/htm-preact.js';
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback } from '../vendor/hooks.js';
export { signal, computed, effect, batch, useSignal } from '../vendor/signals.js';
