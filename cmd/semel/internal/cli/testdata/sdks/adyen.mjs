import adyen from '@adyen/api-library';
import {drive, url} from './drive.mjs';

const client = new adyen.Client({apiKey: 'test', environment: 'TEST', connectionTimeoutMillis: 2000});
const {PaymentsApi: payments} = new adyen.CheckoutAPI(client);
payments.baseUrl = url + '/v71';

await drive(async (key) => {
	const payment = await payments.payments({
		merchantAccount: 'Shop', reference: key, returnUrl: 'https://shop.example/',
		amount: {currency: 'EUR', value: 1200}, paymentMethod: {type: 'scheme', holderName: 'A. Customer'},
	}, {idempotencyKey: key});
	return payment.pspReference;
}, (error) => ({status: error.statusCode, code: error.errorCode}));
