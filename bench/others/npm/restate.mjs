// The shop as a service of Restate, whose effect is a journaled step, as
// https://docs.restate.dev/develop/ts/durable-steps says; errors that aren't to be retried are terminal. The SDK is
// one that runs on Node 20.
import * as restate from '@restatedev/restate-sdk'
import { sale } from './shop.mjs'

const handler = async (ctx, order) => {
  const { status, body } = await ctx.run('charge', () => sale(order))
  if (status >= 400) throw new restate.TerminalError(body.error, { errorCode: status })
  return body
}

restate.serve({ services: [restate.service({ name: 'shop', handlers: { charges: handler, refunds: handler } })], port: Number(process.env.SDK_PORT) })
