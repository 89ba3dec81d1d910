// Signs or checks deliveries by the libraries of their senders, and by what the documents of
// those that have none say. It reads a list of {source, do, body, header, url, secret, key,
// endpoint, time} and writes a list of {ok, header, query}.
import {createHmac, createVerify, timingSafeEqual, X509Certificate} from 'node:crypto';
import {crc32} from 'node:zlib';
import {Signature} from '@hubspot/api-client';
import {sign, verify} from '@octokit/webhooks-methods';
import {EventWebhook} from '@sendgrid/eventwebhook';
import ecdsa from 'starkbank-ecdsa';
import {webhookCallback, Bot} from 'grammy';
import {Webhook} from 'standardwebhooks';
import twilio from 'twilio';
import {getExpectedBodyHash, getExpectedTwilioSignature} from 'twilio/lib/webhooks/webhooks.js';

const form = (r) => {
	const params = {};
	for (const [name, value] of new URLSearchParams(r.body)) {
		params[name] = name in params ? [params[name], value].flat() : value;
	}
	return params;
};
const isForm = (r) => (r.header['Content-Type'] ?? '').startsWith('application/x-www-form-urlencoded');
const mac = (algorithm, encoding, r) => createHmac(algorithm, r.secret).update(r.body).digest(encoding);
const hubspot = (r) => ({
	signatureVersion: 'v3', method: 'POST', clientSecret: r.secret, url: decodeURIComponent(r.url), requestBody: r.body, timestamp: r.time * 1000,
});

const senders = {
	twilio: {
		sign(r) {
			if (isForm(r)) {
				return {header: {'X-Twilio-Signature': getExpectedTwilioSignature(r.secret, r.url, form(r))}};
			}
			const query = 'bodySHA256=' + getExpectedBodyHash(r.body);
			return {query, header: {'X-Twilio-Signature': getExpectedTwilioSignature(r.secret, r.url + '?' + query, {})}};
		},
		check(r) {
			const signature = r.header['X-Twilio-Signature'];
			return isForm(r) ? twilio.validateRequest(r.secret, signature, r.url, form(r)) : twilio.validateRequestWithBody(r.secret, signature, r.url, r.body);
		},
	},
	sendgrid: {
		sign(r) {
			const key = ecdsa.PrivateKey.fromPem(r.key);
			return {header: {
				'X-Twilio-Email-Event-Webhook-Timestamp': String(r.time),
				'X-Twilio-Email-Event-Webhook-Signature': ecdsa.Ecdsa.sign(r.time + r.body, key).toBase64(),
			}};
		},
		check(r) {
			const hook = new EventWebhook();
			const h = r.header;
			return hook.verifySignature(hook.convertPublicKeyToECDSA(r.secret), r.body, h['X-Twilio-Email-Event-Webhook-Signature'], h['X-Twilio-Email-Event-Webhook-Timestamp']);
		},
	},
	hubspot: {
		sign: (r) => ({header: {'X-HubSpot-Request-Timestamp': String(r.time * 1000), 'X-HubSpot-Signature-v3': Signature.getSignature('POST', 'v3', hubspot(r))}}),
		check(r) {
			Signature.MAX_ALLOWED_TIMESTAMP = Infinity; // the time is Semel's to check
			return Signature.isValid({...hubspot(r), timestamp: Number(r.header['X-Hubspot-Request-Timestamp']), signature: r.header['X-Hubspot-Signature-V3']});
		},
	},
	github: {
		sign: async (r) => ({header: {'X-Hub-Signature-256': await sign(r.secret, r.body)}}),
		check: (r) => verify(r.secret, r.body, r.header['X-Hub-Signature-256']),
	},
	'standard-webhooks': {
		sign: (r) => ({header: {'Webhook-Timestamp': String(r.time), 'Webhook-Signature': new Webhook(r.secret).sign(r.header['Webhook-Id'], new Date(r.time * 1000), r.body)}}),
		check(r) {
			const lower = Object.fromEntries(Object.entries(r.header).map(([name, value]) => [name.toLowerCase(), value]));
			Date.now = () => r.time * 1000;
			try {
				new Webhook(r.secret).verify(r.body, lower);
				return true;
			} catch {
				return false;
			}
		},
	},
	telegram: {
		async check(r) {
			const bot = new Bot('1:x', {botInfo: {id: 1, is_bot: true, first_name: 'b', username: 'b'}});
			let handled = false;
			bot.use(() => {
				handled = true;
			});
			const answer = await webhookCallback(bot, 'std/http', {secretToken: r.secret})(new Request('https://hooks.example.com/', {method: 'POST', headers: r.header, body: r.body}));
			return handled && answer.status === 200;
		},
	},
	// These have no library that checks deliveries.
	intercom: {
		sign: (r) => ({header: {'X-Hub-Signature': 'sha1=' + mac('sha1', 'hex', r)}}),
		check: (r) => r.header['X-Hub-Signature'] === 'sha1=' + mac('sha1', 'hex', r),
	},
	paystack: {
		sign: (r) => ({header: {'X-Paystack-Signature': mac('sha512', 'hex', r)}}),
		check: (r) => r.header['X-Paystack-Signature'] === mac('sha512', 'hex', r),
	},
	paypal: {
		check(r) {
			const h = r.header;
			const text = [h['Paypal-Transmission-Id'], h['Paypal-Transmission-Time'], r.endpoint, crc32(r.body)].join('|');
			return createVerify('SHA256').update(text).verify(new X509Certificate(r.secret).publicKey, h['Paypal-Transmission-Sig'], 'base64');
		},
	},
	gitlab: {
		sign: (r) => ({header: {'X-Gitlab-Token': r.secret}}),
		check: (r) => timingSafeEqual(Buffer.from(r.header['X-Gitlab-Token']), Buffer.from(r.secret)),
	},
};

let text = '';
for await (const chunk of process.stdin) {
	text += chunk;
}
const out = [];
for (const r of JSON.parse(text)) {
	const sender = senders[r.source];
	out.push(r.do === 'sign' ? await sender.sign(r) : {ok: Boolean(await sender.check(r))});
}
console.log(JSON.stringify(out));
