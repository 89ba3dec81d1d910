// The name of a record has the members of its identity, each after its length.

/** {tenant, principal, operation, key} of a record's id; null if it isn't one. */
export function readId(id) {
	try {
		const text = atob(id.replaceAll('-', '+').replaceAll('_', '/'));
		const b = Uint8Array.from(text, (c) => c.charCodeAt(0));
		let at = 1;
		const word = () => {
			let n = 0;
			for (let shift = 0; ; shift += 7) {
				n |= (b[at] & 0x7f) << shift;
				if (b[at++] < 0x80) break;
			}
			at += n;
			return new TextDecoder().decode(b.slice(at - n, at));
		};
		return b[0] === 1 ? { tenant: word(), principal: word(), operation: word(), key: word() } : null;
	} catch {
		return null;
	}
}
export const keyOf = (id) => readId(id)?.key || id;
