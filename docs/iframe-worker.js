// Pages that are opened from a folder: browsers refuse workers for file://, so the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.inner = frame.contentWindow
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.inner.importScripts = (...urls) => Promise.all(urls.map((one) => this.load(one)))
      this.load(url).then(() => {
        const { waiting } = this
        this.waiting = null
        waiting.forEach((data) => this.postMessage(data))
      })
    }

    load(url) {
      return new Promise((done) => {
        const script = this.inner.document.createElement("script")
        script.src = url
        script.onload = done
        this.inner.document.body.appendChild(script)
      })
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.inner.dispatchEvent(new MessageEvent("message", { data }))
    }

    terminate() {}
  }
  window.Worker = window.IFrameWorker
}
