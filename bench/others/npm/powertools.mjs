// Powertools for AWS Lambda with its layer for caches, on Redis, wraps a handler of events as
// https://docs.aws.amazon.com/powertools/typescript/latest/features/idempotency/ says. This server
// is what stands in front of a function: it makes an event of each request, gives the function
// Lambda's default of three seconds, and answers the errors that the page names with the draft's
// statuses. VALIDATE adds the page's payload validation.
import { createClient } from '@redis/client'
import { IdempotencyConfig, makeIdempotent } from '@aws-lambda-powertools/idempotency'
import { CachePersistenceLayer } from '@aws-lambda-powertools/idempotency/cache'
import { listen, sale } from './shop.mjs'

const client = await createClient({ url: process.env.REDIS }).connect()
const validation = process.env.VALIDATE ? { payloadValidationJmesPath: 'body' } : {}

// A path is a function of its own, and each request finds an environment of its own, because
// Lambda runs one event at a time in each.
const environment = name => makeIdempotent(async (event, _context) => {
  const { status, body } = await sale(JSON.parse(event.body))
  return { statusCode: status, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) }
}, { persistenceStore: new CachePersistenceLayer({ client }), keyPrefix: name, config: new IdempotencyConfig({ eventKeyJmesPath: 'headers."idempotency-key"', ...validation }) })

const statuses = { IdempotencyAlreadyInProgressError: 409, IdempotencyValidationError: 422 }

listen(async (req, res) => {
  const { pathname, searchParams } = new URL(req.url, 'http://localhost')
  if (!['/charges', '/refunds'].includes(pathname)) return res.writeHead(404).end()
  try {
    const chunks = []
    for await (const chunk of req) chunks.push(chunk)
    const event = {
      httpMethod: req.method, path: pathname, headers: req.headers,
      queryStringParameters: Object.fromEntries(searchParams), body: Buffer.concat(chunks).toString(),
    }
    const end = Date.now() + 3000
    const context = {
      functionName: pathname.slice(1), awsRequestId: crypto.randomUUID(), callbackWaitsForEmptyEventLoop: true,
      functionVersion: '1', invokedFunctionArn: 'arn:aws:lambda:eu-west-1:1:function:shop', memoryLimitInMB: '128',
      logGroupName: 'shop', logStreamName: 'shop', getRemainingTimeInMillis: () => end - Date.now(), done() {}, fail() {}, succeed() {},
    }
    const { statusCode, headers, body } = await environment(pathname.slice(1))(event, context)
    res.writeHead(statusCode, headers).end(body)
  } catch (e) {
    res.writeHead(statuses[e.name] ?? 500, { 'Content-Type': 'text/plain' }).end(e.message)
  }
})
