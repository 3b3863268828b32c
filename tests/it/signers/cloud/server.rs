//! An HTTP server on the loopback that responds by a function.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use actix_web::http::StatusCode;
use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use serde_json::Value;

pub struct Asked {
    pub method: String,
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub fn form(&self) -> BTreeMap<String, String> {
        url::form_urlencoded::parse(&self.body).into_owned().collect()
    }

    pub fn bearer(&self) -> &str {
        let value = self.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        value.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A response: status, body, a header.
pub struct Told(pub u16, pub Value, pub Option<(&'static str, String)>);

impl Told {
    pub fn new(status: u16, body: Value) -> Self {
        Self(status, body, None)
    }
}

type Answer = dyn Fn(&Asked) -> Told + Send + Sync;

/// Starts a server that runs until the process ends, and returns its URL.
pub fn serve(answer: impl Fn(&Asked) -> Told + Send + Sync + 'static) -> String {
    let answer: Arc<Answer> = Arc::new(answer);
    let (started, address) = mpsc::channel();
    std::thread::spawn(move || {
        actix_web::rt::System::new().block_on(async move {
            let app =
                move || App::new().app_data(web::Data::from(Arc::new(answer.clone()))).default_service(web::to(handle));
            let server = HttpServer::new(app).workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
            started.send(server.addrs()[0]).unwrap();
            server.run().await.unwrap();
        });
    });
    format!("http://{}", address.recv().unwrap())
}

async fn handle(answer: web::Data<Arc<Answer>>, request: HttpRequest, body: web::Bytes) -> HttpResponse {
    let asked = Asked {
        method: request.method().to_string(),
        path: request.path().to_owned(),
        query: url::form_urlencoded::parse(request.query_string().as_bytes()).into_owned().collect(),
        headers: request.headers().clone(),
        body: body.to_vec(),
    };
    let Told(status, body, header) = answer(&asked);
    let mut response = HttpResponse::build(StatusCode::from_u16(status).unwrap());
    if let Some(header) = header {
        response.insert_header(header);
    }
    response.json(body)
}
