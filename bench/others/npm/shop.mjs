// The shop of shop_test.go, for servers on Node.
import http from 'node:http'
import { setTimeout as pause } from 'node:timers/promises'

// sale asks the bank for money, unless the request is to be rejected.
export async function sale({ mode } = {}) {
  if (mode === 'rejected') return { status: 422, body: { error: 'declined' } }
  const n = Number(await (await fetch(process.env.BANK, { method: 'POST' })).text())
  if (mode === 'failing') return { status: 500, body: { error: `after charge ${n}` } }
  if (mode === 'slow') await pause(400)
  const body = mode === 'big' ? { charge: n, note: 'x'.repeat(200_000) } : { charge: n }
  return { status: 201, body }
}

// listen serves at the port that it has had before, and tells who has started it.
export function listen(handler) {
  const server = http.createServer(handler)
  server.listen(Number(process.env.PORT || 0), '127.0.0.1', () => tell(`http://127.0.0.1:${server.address().port}`))
  process.stdin.resume().on('end', () => process.exit())
}

// tell prints where it serves.
export const tell = url => console.log(JSON.stringify({ url }))
