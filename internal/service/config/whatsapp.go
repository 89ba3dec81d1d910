package config

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"

	"github.com/semelhq/semel/door/ids/whatsapp"
)

// Commands says which commands the service accepts.
type Commands struct {
	// Registry of the commands, a YAML file; see semel ids lint. Without it there are no commands.
	Registry    string `json:"registry,omitzero"`
	Remembering `yaml:",inline"`
	// Attributes to keep with the record of a command, to find it by: json:/POINTER in its args.
	Attributes []string `json:"attributes,omitempty" pairs:"true" with:"registry,the registry of the commands"`
	// Commands that come as WhatsApp messages.
	WhatsApp WhatsApp `json:"whatsapp,omitzero"`
}

// WhatsApp is the webhook of a WhatsApp app. A delivery's only credential is its
// signature; see [whatsapp.Ingress].
type WhatsApp struct {
	// Path of the webhook on the data listener, such as /webhooks/whatsapp. No route can hide it.
	Path string `json:"path,omitzero" required:"true"`
	// File with the token that WhatsApp sends to verify the webhook.
	VerifyTokenFile string `json:"verify_token_file,omitzero" required:"true"`
	// Files with the app's secret, which signs deliveries: one, or two during a rotation.
	AppSecretFiles []string `json:"app_secret_files,omitempty" required:"true"`
	// Where to ask for the command that a message means: an http or https URL.
	MapperURL string `json:"mapper_url,omitzero" required:"true" secret:"url" format:"http"`
	// How long one question to the mapper may take. Defaults to 10s.
	MapperTimeout Duration `json:"mapper_timeout,omitzero" range:"100ms,10m"`
	// Phone numbers of the app.
	Numbers []WhatsAppNumber `json:"numbers,omitempty" required:"true"`
	// Where replies to senders are posted: an http or https URL. Without it nobody gets a reply.
	ReplyURL string `json:"reply_url,omitzero" secret:"url" format:"http"`
	// Files with a secret each, whsec_ and base64. They sign replies by Standard Webhooks.
	ReplySecretFiles []string `json:"reply_secret_files,omitempty"`
}

// WhatsAppNumber is a phone number and its tenant.
type WhatsAppNumber struct {
	// Id of the phone number, as WhatsApp gave it: digits, in quotes.
	PhoneNumberID string `json:"phone_number_id" required:"true" unique:"a number belongs to one tenant"`
	// Tenant of the number. Defaults to auth.default_tenant.
	Tenant string `json:"tenant,omitzero"`
	// Rights of everybody who sends a message to this number, as the registry of commands names them.
	Rights []string `json:"rights,omitempty"`
}

const minWhatsAppSecret = 8 // bytes of the shortest secret that the webhook accepts

// On reports whether the webhook is configured.
func (w *WhatsApp) On() bool { return w.Path != "" }

// Secrets reads the files with the webhook's secrets.
func (w *WhatsApp) Secrets() (verifyToken string, app []string, err error) {
	if verifyToken, err = readSecret(w.VerifyTokenFile); err == nil {
		app, err = ReadSecrets(w.AppSecretFiles)
	}
	return verifyToken, app, err
}

var whatsAppDoors = doorSection{
	derive: deriveWhatsApp, validate: (*validator).whatsapp,
	mounts:  func(c *Config) []mount { return []mount{webhookAt("commands.whatsapp", c.Commands.WhatsApp.Path)} },
	accepts: "messages from WhatsApp", destination: whatsapp.Destination,
	reserved: func(name string) bool {
		return name == whatsapp.MessageOperation || name == whatsapp.StatusOperation
	},
}

func deriveWhatsApp(c *Config, _ *Origins, _ func(path, from string)) {
	w := &c.Commands.WhatsApp
	for i := range w.Numbers {
		w.Numbers[i].Tenant = cmp.Or(w.Numbers[i].Tenant, c.Auth.DefaultTenant)
	}
	if w.On() {
		w.MapperTimeout = cmp.Or(w.MapperTimeout, Duration(whatsapp.DefaultMapTimeout))
	}
}

var phoneNumberID = regexp.MustCompile(`^[0-9]{1,64}$`)

func (v *validator) whatsapp() {
	v.attributes("commands", "ids", v.c.Commands.Attributes)
	w := &v.c.Commands.WhatsApp
	if reflect.ValueOf(w).Elem().IsZero() {
		return
	}
	const at = "commands.whatsapp"
	if v.c.Commands.Registry == "" {
		v.bad("commands.registry", "name the registry of the commands", "messages bring commands, and no commands are declared")
	}
	v.plainPath(at+".path", w.Path, "/webhooks/whatsapp")
	v.whatsappSecrets(at, w)
	if w.ReplyURL == "" && len(w.ReplySecretFiles) > 0 {
		v.bad(at+".reply_secret_files", "add reply_url", "there are no replies to sign")
	}
	v.secrets(at+".reply_secret_files", w.ReplySecretFiles)
	v.numbers(at+".numbers", w.Numbers)
}

func (v *validator) whatsappSecrets(at string, w *WhatsApp) {
	var secrets []string
	read := func(path, file string) {
		text, ok := secretFile(v.Report, path, file)
		switch {
		case !ok:
			return
		case len(text) < minWhatsAppSecret:
			v.bad(path, "", "%s has fewer than %d bytes", file, minWhatsAppSecret)
		case slices.Contains(secrets, text):
			v.bad(path, "use another secret for each", "%s has the secret of another file", file)
		}
		secrets = append(secrets, text)
	}
	for path, file := range items(at+".app_secret_files", w.AppSecretFiles) {
		read(path, *file)
	}
	if len(w.AppSecretFiles) > 2 {
		v.bad(at+".app_secret_files", "keep the new one and the previous one", "there are %d, more than 2", len(w.AppSecretFiles))
	}
	if w.VerifyTokenFile != "" { // it comes in URLs, so it must differ from the others
		read(at+".verify_token_file", w.VerifyTokenFile)
	}
}

func (v *validator) numbers(at string, numbers []WhatsAppNumber) {
	for path, n := range items(at, numbers) {
		if n.PhoneNumberID != "" && !phoneNumberID.MatchString(n.PhoneNumberID) {
			v.bad(path+".phone_number_id", "it is the id that WhatsApp shows beside the number", "%q has characters that aren't digits", n.PhoneNumberID)
		}
		if n.Tenant == "" {
			v.bad(path+".tenant", "write one, or auth.default_tenant", "tenant is missing")
		}
	}
}
