//! `Expect: 100-continue` (RFC 9110, 10.1.1): the server sends `100 Continue` only when a handler reads the body.
//!
//! The HTTP/1.1 dispatcher of actix calls the expect service, sends `100 Continue` and then calls the app service. Here
//! the expect service already calls the app. If the app responds without reading the body, the dispatcher sends that
//! response instead of a 100. If the app starts to read the body, the expect service returns a request that contains
//! the pending call. The dispatcher then sends the 100 and passes this request to the app service, which resumes the
//! call.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_http::body::{BoxBody, MessageBody};
use actix_http::error::PayloadError;
use actix_http::{HttpMessage as _, Payload, Request, Response};
use actix_service::fn_factory;
use actix_web::dev::{Service, ServiceFactory, always_ready, forward_ready};
use actix_web::http::ConnectionType;
use bytes::Bytes;
use futures_util::future::{Either, LocalBoxFuture};
use futures_util::{FutureExt as _, Stream};

/// The app of a worker, which the app service, the expect service and HTTP/2 share. Empty until the app is created.
pub(super) struct AppCell<S>(Rc<RefCell<Option<Rc<S>>>>);

impl<S> Clone for AppCell<S> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

type BoxedPayload = Pin<Box<dyn Stream<Item = Result<Bytes, PayloadError>>>>;

/// A pending call of the app. The expect service passes it to the app service as an extension of a request.
struct PendingCall<F>(Pin<Box<F>>);

impl<S> AppCell<S>
where
    S: Service<Request> + 'static,
    S::Future: 'static,
{
    pub(super) fn new() -> Self {
        Self(Rc::default())
    }

    pub(super) fn get(&self) -> Option<Rc<S>> {
        self.0.borrow().clone()
    }

    /// Returns a factory for the app service, which also stores the app in this cell.
    pub(super) fn app_service<F>(
        &self,
        factory: F,
    ) -> impl ServiceFactory<Request, Config = (), Response = S::Response, Error = S::Error, InitError = F::InitError>
    + use<F, S>
    where
        F: ServiceFactory<Request, Config = (), Service = S, Response = S::Response, Error = S::Error> + 'static,
    {
        let shared = Rc::clone(&self.0);
        fn_factory(move || {
            let new_app = factory.new_service(());
            let shared = Rc::clone(&shared);
            async move {
                let app = Rc::new(new_app.await?);
                *shared.borrow_mut() = Some(Rc::clone(&app));
                Ok(ResumingService { app })
            }
        })
    }

    pub(super) fn expect_service<B>(
        &self,
    ) -> impl ServiceFactory<Request, Config = (), Response = Request, Error = Response<BoxBody>, InitError = ()> + use<B, S>
    where
        S::Response: Into<Response<B>>,
        S::Error: Into<Response<BoxBody>>,
        B: MessageBody + 'static,
    {
        let shared = Rc::clone(&self.0);
        fn_factory(move || std::future::ready(Ok(ExpectService::<_, B>(Rc::clone(&shared), PhantomData))))
    }
}

/// The app service. It calls the app, or resumes the call that the expect service has started.
struct ResumingService<S> {
    app: Rc<S>,
}

impl<S> Service<Request> for ResumingService<S>
where
    S: Service<Request>,
    S::Future: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, Pin<Box<S::Future>>>;

    forward_ready!(app);

    fn call(&self, request: Request) -> Self::Future {
        let pending_call = request.extensions_mut().remove::<PendingCall<S::Future>>();
        match pending_call {
            Some(PendingCall(call)) => Either::Right(call),
            None => Either::Left(self.app.call(request)),
        }
    }
}

/// The expect service. It calls the app and returns the app's response, or the pending call when the app reads the
/// body.
struct ExpectService<S, B>(Rc<RefCell<Option<Rc<S>>>>, PhantomData<B>);

impl<S, B> Service<Request> for ExpectService<S, B>
where
    S: Service<Request> + 'static,
    S::Response: Into<Response<B>>,
    S::Error: Into<Response<BoxBody>>,
    S::Future: 'static,
    B: MessageBody + 'static,
{
    type Response = Request;
    type Error = Response<BoxBody>;
    type Future = LocalBoxFuture<'static, Result<Request, Response<BoxBody>>>;

    always_ready!();

    fn call(&self, mut request: Request) -> Self::Future {
        let app = self.0.borrow().clone();
        async move {
            let Some(app) = app else { return Ok(request) };
            let (payload, wanted) = flag_reads(request.take_payload());
            let (request, _) = request.replace_payload(payload);
            let mut call = Box::pin(app.call(request));
            let answered = std::future::poll_fn(|cx| match call.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending if wanted.get() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            match answered.await {
                Some(answer) => Err(prepare_early_response(answer.map(|answer| answer.into().map_into_boxed_body()))),
                None => {
                    let resumed = Request::new();
                    resumed.extensions_mut().insert(PendingCall(call));
                    Ok(resumed)
                }
            }
        }
        .boxed_local()
    }
}

/// Prepares the response that is sent instead of a 100. It closes the connection, because the client may or may not
/// send the body now.
fn prepare_early_response(answer: Result<Response<BoxBody>, impl Into<Response<BoxBody>>>) -> Response<BoxBody> {
    let mut response = answer.unwrap_or_else(Into::into);
    response.head_mut().set_connection_type(ConnectionType::Close);
    response
}

/// Wraps a request body. Returns the wrapped body, and a flag that is set when the body is first read.
pub(super) fn flag_reads(payload: Payload) -> (Payload, Rc<Cell<bool>>) {
    let wanted = Rc::new(Cell::new(false));
    let payload: BoxedPayload = Box::pin(ReadFlaggedBody { payload, wanted: Rc::clone(&wanted) });
    (Payload::Stream { payload }, wanted)
}

struct ReadFlaggedBody {
    payload: Payload,
    wanted: Rc<Cell<bool>>,
}

impl Stream for ReadFlaggedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.wanted.set(true);
        Pin::new(&mut self.payload).poll_next(cx)
    }
}
