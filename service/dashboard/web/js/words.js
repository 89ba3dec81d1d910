// One explanation for each word, the same wherever it is shown.
export const words = {
	attempt: 'One execution of a call, under one lease.',
	fence: 'The fencing token: a number that rises with every new holder and is never used twice.',
	lease: 'The right to execute until a time. Its holder renews it while it works.',
	held: 'The holder is gone and an effect may have happened. Nobody runs the call until somebody settles it.',
	conflict: 'The same key came with another payload. Nothing was executed, and nothing was shown.',
	replay: 'A duplicate got the outcome that exists. Nothing was executed.',
	in_flight: 'The delivery met a running attempt and was told to come back, or waited for its outcome.',
	window: 'How long an outcome is kept, counted from when the attempt ended.',
	fingerprint: 'A digest of the payload. It tells a duplicate from a conflict.',
	effect: 'One call from a handler to another system, in the ledger of the attempt.',
	settle: 'Say what happened to a held call, so that its duplicates get an answer.',
	release: 'Let the next delivery run the call again, although nobody knows what happened.',
	purge: 'Forget an ended record before its time. The next delivery runs again.',
};

export const decisions = {
	execute: { label: 'executed', tone: 'blue', says: 'was executed' },
	replay: { label: 'replayed', tone: 'green', says: 'got the outcome that exists' },
	in_flight: { label: 'in flight', tone: 'cyan', says: 'met a running attempt, and was told to come back' },
	conflict: { label: 'conflict', tone: 'red', says: 'had another payload, and was refused' },
	held: { label: 'held', tone: 'amber', says: 'was refused: the call is held' },
	too_late: { label: 'too late', tone: 'orange', says: 'came too late, and was refused' },
	throttled: { label: 'throttled', tone: 'orange', says: 'was throttled' },
	other_door: { label: 'other door', tone: 'red', says: 'came through another door, and was refused' },
	other_caller: { label: 'other caller', tone: 'red', says: 'came with another credential: nothing was run or shown' },
	sequence_gap: { label: 'sequence gap', tone: 'orange', says: 'came before the number that comes next' },
	superseded: { label: 'superseded', tone: 'orange', says: 'was older than the newest of its key' },
};
export const decision = (d) => decisions[d] || { label: d, tone: 'grey', says: 'was answered ' + d };

export const states = {
	processing: { label: 'processing', tone: 'blue', says: 'is being executed' },
	completed: { label: 'completed', tone: 'green', says: 'completed' },
	rejected: { label: 'rejected', tone: 'red', says: 'was rejected for good' },
	failed: { label: 'failed', tone: 'red', says: 'failed' },
	aborted: { label: 'aborted', tone: 'grey', says: 'ended, and nothing had happened' },
	abandoned: { label: 'abandoned', tone: 'orange', says: 'was given up' },
	held: { label: 'held', tone: 'amber', says: 'is held: nobody knows what its attempt did' },
	compensated: { label: 'compensated', tone: 'violet', says: 'was undone' },
};
export const stateOf = (rec) => {
	if (rec.held) return 'held';
	if (rec.compensation?.state === 'done') return 'compensated';
	return rec.status === 'failed' ? rec.disposition || 'failed' : rec.status;
};
/** Who settled something, and why; a reconciler gives no reason. */
export const settledBy = (s) => 'by ' + (s.who || s.by) + (s.reason ? ': ' + s.reason : '');
export const state = (s) => states[s] || { label: s, tone: 'grey', says: s };
