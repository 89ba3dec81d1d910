// express-idempotency with its defaults, as https://www.npmjs.com/package/express-idempotency
// says ("Getting started", and "Determine a idempotency hit in route handler").
import express from 'express'
import idempotency from 'express-idempotency'
import { listen, sale } from './shop.mjs'

const app = express()
app.use(express.json())
app.post('*', idempotency.idempotency())
app.post(['/charges', '/refunds'], async (req, res) => {
  if (idempotency.getSharedIdempotencyService().isHit(req)) return
  const { status, body } = await sale(req.body)
  res.status(status).json(body)
})
listen(app)
