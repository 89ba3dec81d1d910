import Stripe from 'stripe';
import {drive, mode, url} from './drive.mjs';

const {hostname, port} = new URL(url);
const stripe = new Stripe('sk_test_semel', {host: hostname, port, protocol: 'http', maxNetworkRetries: 4, timeout: 2000, telemetry: false});

await drive(async (key) => {
	const options = mode === 'own keys' ? {} : {idempotencyKey: key};
	const intent = await stripe.paymentIntents.create({amount: 1200, currency: 'eur', metadata: {order: key}}, options);
	return intent.id;
}, (error) => ({status: error.statusCode, code: error.code}));
