// @node-idempotency/core with its adapter for memory, called before and after the shop as
// https://www.npmjs.com/package/@node-idempotency/core says ("usage"). It leaves the statuses of
// its refusals to the server: these are the draft's.
import express from 'express'
import { Idempotency, IdempotencyErrorCodes } from '@node-idempotency/core'
import { MemoryStorageAdapter } from '@node-idempotency/storage-adapter-memory'
import { listen, sale } from './shop.mjs'

const idempotency = new Idempotency(new MemoryStorageAdapter())
const refusals = {
  [IdempotencyErrorCodes.REQUEST_IN_PROGRESS]: 409,
  [IdempotencyErrorCodes.IDEMPOTENCY_FINGERPRINT_MISSMATCH]: 422,
}

const app = express()
app.use(express.json())
app.post(['/charges', '/refunds'], async (req, res) => {
  const request = { method: req.method, headers: req.headers, body: req.body, path: req.originalUrl }
  try {
    const before = await idempotency.onRequest(request)
    if (before) return res.status(before.additional.status).json(before.body)
  } catch (e) {
    return res.status(refusals[e.code] ?? 400).json({ error: e.message })
  }
  const { status, body } = await sale(req.body)
  await idempotency.onResponse(request, { body, additional: { status } })
  res.status(status).json(body)
})
listen(app)
