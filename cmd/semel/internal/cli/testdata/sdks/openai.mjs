import OpenAI from 'openai';
import {drive, url} from './drive.mjs';

const openai = new OpenAI({apiKey: 'test', baseURL: url + '/v1', timeout: 2000});

await drive(async (key) => {
	const answer = await openai.chat.completions.create(
		{model: 'test', messages: [{role: 'user', content: 'order ' + key}]},
		{headers: {'Idempotency-Key': key}}, // the library has no key of its own
	);
	return answer.id;
}, (error) => ({status: error.status, code: error.code}));
